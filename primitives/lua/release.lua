-- release: give up a lease that is ours and hand it to the next in line; also
-- leave the queue. A tombstone answers a repeat whose first reply was lost.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 tombstone of the nonce
-- ARGV  1 nonce  2 epoch  3 token ttl, ms  4 tombstone ttl, ms
-- returns {'released'}
--         {'lost', holder, token}  of whoever holds it now, both '' if nobody
--         {'corrupt', key, reason}
-- include: clock token state lease
if drop(ARGV[1], tonumber(ARGV[2]), ARGV[3]) then
  redis.call('SET', KEYS[5], '1', 'PX', ARGV[4])
  return {'released'}
end
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
leave(ARGV[1])
if redis.call('EXISTS', KEYS[5]) == 1 then return {'released'} end
return {'lost', lease and lease.holder or '', lease and lease.token or ''}
