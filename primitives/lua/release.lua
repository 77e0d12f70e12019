-- release: give up a lease that is ours and hand it to the next in line; also
-- leave the queue. A tombstone answers a repeat whose first reply was lost, and
-- refuses an acquire of ours that is still on its way.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 tombstone of the nonce
-- ARGV  1 nonce  2 epochs known  3 token ttl, ms  4 tombstone ttl, ms
--       5 '1' if the caller gives up an acquire that may not have been granted
-- returns {'released'}
--         {'lost', holder, token}  of whoever holds it now, both '' if nobody
--         {'corrupt', key, reason}
-- include: soft held
local nonce = ARGV[1]

local function released()
  redis.call('SET', KEYS[5], '1', 'PX', ARGV[4])
  return {'released'}
end

-- The common way: it is ours, and nobody waits.
if held_token(nonce) and nobody_waits() then
  redis.call('DEL', KEYS[1])
  return released()
end

-- include: clock token epoch grant state queue
if drop(nonce, ARGV[2], ARGV[3]) then return released() end
if ARGV[5] == '1' then redis.pcall('SET', KEYS[5], '1', 'PX', ARGV[4]) end -- not if memory is full
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
leave(nonce)
if redis.call('EXISTS', KEYS[5]) == 1 then return {'released'} end
return {'lost', lease and lease.holder or '', lease and lease.token or ''}
