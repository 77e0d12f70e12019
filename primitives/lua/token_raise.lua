-- token_raise: every token granted from now on is above the floor.
-- KEYS  1 token
-- ARGV  1 floor, 19 digits  2 token ttl, ms
-- returns {'raised', last token}
--         {'corrupt', key, reason}
-- include: soft token
local last, bad = read_token(KEYS[1])
if bad then return bad end
if ARGV[1] > last then last = ARGV[1] end
redis.call('SET', KEYS[1], last, 'PX', ARGV[2])
return {'raised', last}
