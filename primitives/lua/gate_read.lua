-- gate_read: the highest token that passed, and a value written under it.
-- KEYS  1 gate  [2 value]
-- returns {'none'}                       no token has passed
--         {'seen', token, owner nonce [, '1' if there is a value, value or '']}
--         {'corrupt', key, reason}
-- include: token state
local seen = soft('HMGET', KEYS[1], 'token', 'nonce')
if not seen then return corrupt(KEYS[1], 'it is not a gate') end
if redis.call('EXISTS', KEYS[1]) == 0 then return {'none'} end
if not is_token(seen[1]) then return corrupt(KEYS[1], 'its token is malformed') end
if not KEYS[2] then return {'seen', seen[1], seen[2] or ''} end
local value = soft('GET', KEYS[2])
if value == nil then return corrupt(KEYS[2], 'it is not a string') end
return {'seen', seen[1], seen[2] or '', value and '1' or '0', value or ''}
