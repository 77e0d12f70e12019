-- acquire: take the lease of a resource, or wait in line for it.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 tombstone of the nonce
-- ARGV  1 nonce  2 lease ttl, ms  3 holder
--       4 epochs known  5 floor, 19 digits  6 token ttl, ms
--       7 channel of a caller that waits, else ''  8 its ticket, '' at first  9 its life in the queue, ms
-- returns {'granted', token}
--         {'busy', remaining ms, holder, token, since ms [, ticket, place in the queue]}
--         {'lost'}         the caller has given it up meanwhile
--         {'unregistered', replication id, the id that it follows}  nothing was granted
--         {'corrupt', key, reason}
-- A repeat with the nonce of the present holder gets the same grant again.
-- include: clock soft token epoch grant
local nonce, ttl, epochs = ARGV[1], ARGV[2], ARGV[4]
local time = clock()
local who = {nonce = nonce, ttl = ttl, exec = '', order = '', holder = ARGV[3], op = '',
  fixed = '0', floor = ARGV[5], channel = ARGV[7], ticket = ARGV[8], life = tonumber(ARGV[9])}

local function granted(token, bad)
  return bad or {'granted', token}
end

-- The common way: nobody has it, and nobody waits.
if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0 then
  return granted(grant(time, who, epochs, ARGV[5], ARGV[6]))
end

-- include: state held queue
if redis.call('EXISTS', KEYS[5]) == 1 then return {'lost'} end
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
if not lease then lease = yield_to_queue(time, who, epochs, ARGV[6]) end
if lease and lease.nonce ~= nonce then return busy_reply(time, lease, who) end

if who.ticket ~= '' then leave(nonce) end
if lease then -- our first reply was lost, or we were handed it
  redis.call('PEXPIRE', KEYS[1], ttl)
  return granted(lease.token)
end
return granted(grant(time, who, epochs, ARGV[5], ARGV[6]))
