-- lease_free: an operator takes a lease away from its holder and raises the token,
-- so that the store refuses the holder from now on.
-- KEYS  1 lease  2 token  3 queue  4 waiters
-- ARGV  1 nonce that the caller saw  2 epochs known  3 token ttl, ms
-- returns {'freed', new token}
--         {'changed'}             somebody else, or nobody, holds it now
--         {'unregistered', replication id, the id that it follows}  nothing was changed
--         {'corrupt', key, reason}
-- include: clock soft token held epoch grant state queue
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
if not lease or lease.nonce ~= ARGV[1] then return {'changed'} end
local last
last, bad = read_token(KEYS[2])
if bad then return bad end
local epoch
epoch, bad = epoch_here(ARGV[2])
if bad then return bad end
local token = next_token(clock(), epoch, last, lease.token)
if not token then return corrupt(KEYS[2], 'its tokens are used up') end
redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
drop(ARGV[1], ARGV[2], ARGV[3])
return {'freed', token}
