-- gate: let a token through unless a newer one has been here, and write a value
-- under it in the same step.
-- KEYS  1 gate  [2 value]
-- ARGV  1 token, 19 digits  2 owner nonce, or ''  3 gate ttl, ms  [4 value  5 value ttl, ms]
-- returns {'passed'}
--         {'stale', highest token seen}
--         {'corrupt', key, reason}
-- An equal token passes for the same owner only.
-- include: clock token state
local left = redis.call('PTTL', KEYS[1])
local seen = soft('HMGET', KEYS[1], 'token', 'nonce')
if not seen or (left ~= -2 and not is_token(seen[1])) then
  return corrupt(KEYS[1], 'it is not a gate')
end
local token, owner = ARGV[1], ARGV[2]
local top, holder = seen[1] or ZERO, seen[2] or ''
if token < top or (token == top and owner ~= holder) then return {'stale', top} end
redis.call('HSET', KEYS[1], 'token', token, 'nonce', owner)
redis.call('PEXPIRE', KEYS[1], decimal(math.max(left, tonumber(ARGV[3]))))
if KEYS[2] then redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5]) end
return {'passed'}
