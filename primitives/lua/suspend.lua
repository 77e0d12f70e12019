-- suspend: the body has returned, its result comes later from elsewhere: mark the
-- record pending and hold the lease for it, unrenewed.
-- KEYS  1 lease  2 record
-- ARGV  1 nonce  2 how long to wait for the result, ms  3 record ttl, ms
-- returns {'suspended'}
--         {'lost', holder, token}
--         {'corrupt', key, reason}
-- include: clock soft token state
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
local record
record, bad = read_record(KEYS[2])
if bad then return bad end
if not lease or lease.nonce ~= ARGV[1] then
  return {'lost', lease and lease.holder or '', lease and lease.token or ''}
end
if not record or record.nonce ~= ARGV[1] or record.finished then return {'lost', '', ''} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[2], 'state', 'pending')
redis.call('PEXPIRE', KEYS[2], kept(record, ARGV[3]))
return {'suspended'}
