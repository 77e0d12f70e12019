-- lease_read: who holds a resource, and how many wait.
-- KEYS  1 lease  2 token  3 queue
-- returns {'free', last token, waiters}
--         {'held', last token, waiters, nonce, token, holder, since ms, remaining ms}
--         {'corrupt', key, reason}
-- include: clock token state
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
local last
last, bad = read_token(KEYS[2])
if bad then return bad end
local waiters = soft('ZCARD', KEYS[3])
if not waiters then return corrupt(KEYS[3], 'it is not a queue') end
waiters = decimal(waiters)
if not lease then return {'free', last, waiters} end
return {'held', last, waiters, lease.nonce, lease.token, lease.holder, lease.since, decimal(lease.left)}
