-- lease_free: an operator takes a lease away from its holder and raises the token,
-- so that the store refuses the holder from now on.
-- KEYS  1 lease  2 token  3 queue  4 waiters
-- ARGV  1 nonce that the caller saw  2 epoch  3 token ttl, ms
-- returns {'freed', new token}
--         {'changed'}             somebody else, or nobody, holds it now
--         {'corrupt', key, reason}
-- include: clock token state lease
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
if not lease or lease.nonce ~= ARGV[1] then return {'changed'} end
local last
last, bad = read_token(KEYS[2])
if bad then return bad end
local time, epoch = clock(), tonumber(ARGV[2])
local token = next_token(time, epoch, last, lease.token)
if not token then return corrupt(KEYS[2], 'its tokens are used up') end
redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
drop(ARGV[1], epoch, ARGV[3])
return {'freed', token}
