-- renew: keep a lease that is still ours, and the record under it.
-- KEYS  1 lease  2 token  [3 record]
-- ARGV  1 nonce  2 lease ttl, ms  3 record ttl, ms  4 token ttl, ms
-- returns {'renewed'}
--         {'lost', holder, token}  of whoever holds it now, both '' if nobody
--         {'corrupt', key, reason}
-- A lease that has expired is never revived, and one that lasts longer is not cut.
-- include: soft token state
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
if not lease then return {'lost', '', ''} end
if lease.nonce ~= ARGV[1] then return {'lost', lease.holder, lease.token} end
if tonumber(ARGV[2]) > lease.left then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('PEXPIRE', KEYS[2], ARGV[4]) -- what a lease lasts longer than must not be forgotten
if KEYS[3] then
  local record = read_record(KEYS[3])
  if record and record.nonce == ARGV[1] and not record.finished and tonumber(ARGV[3]) > record.left then
    redis.call('PEXPIRE', KEYS[3], ARGV[3])
  end
end
return {'renewed'}
