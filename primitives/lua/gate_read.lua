-- gate_read: the highest token that passed, and a value written under it.
-- KEYS  1 gate  [2 value]
-- returns {'none'}                       no token has passed
--         {'seen', token, owner nonce [, '1' if there is a value, value or '']}
--         {'corrupt', key, reason}
-- include: token state
local seen = redis.pcall('HMGET', KEYS[1], 'token', 'nonce')
if seen.err then return corrupt(KEYS[1], 'it is not a gate') end
if not seen[1] then return {'none'} end
if not is_token(seen[1]) then return corrupt(KEYS[1], 'its token is malformed') end
if not KEYS[2] then return {'seen', seen[1], seen[2] or ''} end
local value = redis.pcall('GET', KEYS[2])
if type(value) == 'table' then return corrupt(KEYS[2], 'it is not a string') end
return {'seen', seen[1], seen[2] or '', value and '1' or '0', value or ''}
