-- Queueing for the lease of one resource, and handing it on.
-- Needs: clock, soft, token, epoch, held, grant, state.
--
-- KEYS[1..4] of every script that includes this are the resource's lease, its
-- last token, its queue (sorted set: nonce by ticket) and its waiters (hash: nonce
-- to entry). KEYS[6], if there is a record, are the channels of those who want it.
-- A queue or waiters that are not ours cost callers their order, never the lease:
-- they count as empty, and are named to whoever wants to join.

-- How long a lease that was handed to a waiter waits for it to say "thank you".
local CLAIM = 1000

local function leave(nonce)
  soft('ZREM', KEYS[3], nonce)
  soft('HDEL', KEYS[4], nonce)
end

-- is_wake: one of the channels on which processes of this prefix listen. Nothing is
-- published on any other, whatever an entry says.
local function is_wake(channel)
  local wake = string.match(KEYS[1], '^(.-){') .. 'wake:'
  return type(channel) == 'string' and string.sub(channel, 1, #wake) == wake
end

-- read_entry: what is stored about a waiter, or nil if it is not what join wrote.
local function read_entry(nonce)
  local ok, entry = pcall(cjson.decode, soft('HGET', KEYS[4], nonce) or '')
  if not ok or type(entry) ~= 'table' or not is_wake(entry.channel) then return nil end
  for _, field in ipairs({'ttl', 'exec', 'order', 'holder', 'op', 'fixed', 'floor', 'alive'}) do
    if type(entry[field]) ~= 'string' then return nil end
  end
  return is_count(entry.ttl) and is_count(entry.alive) and is_token(entry.floor) and entry
end

-- first_waiter: the longest waiting one that is still alive, as nonce and entry.
-- Dead ones are dropped on the way.
local function first_waiter(at)
  while true do
    local head = soft('ZRANGE', KEYS[3], 0, 0)
    local nonce = head and head[1]
    if not nonce then return nil end
    local entry = read_entry(nonce)
    if entry and tonumber(entry.alive) > at then return nonce, entry end
    leave(nonce)
  end
end

-- hand_on gives the free lease to the first live waiter: pops it, mints its
-- token above `floor`, writes its lease and tells its process. It tells the one
-- behind to look again when the claim ends, in case the first is dead. Waiters for the record
-- `done` have been told already and are passed over.
local function hand_on(time, epochs, floor, token_ttl, done)
  if not epoch_here(epochs) then return end -- who looks next will have it registered
  local at = millis(time)
  local nonce, entry = first_waiter(at)
  while nonce and done and entry.op == done do
    leave(nonce)
    nonce, entry = first_waiter(at)
  end
  if not nonce then return end
  leave(nonce)
  local claim = math.min(CLAIM, tonumber(entry.ttl))
  if not is_token(floor) or entry.floor > floor then floor = entry.floor end
  local token = grant(time, {nonce = nonce, ttl = decimal(claim), exec = entry.exec,
    order = entry.order, op = entry.op, holder = entry.holder, fixed = entry.fixed}, epochs, floor, token_ttl)
  if not token then return end
  redis.call('PUBLISH', entry.channel, 'granted ' .. nonce)
  local behind, next_entry = first_waiter(at)
  if behind then
    redis.call('PUBLISH', next_entry.channel, 'check ' .. behind .. ' ' .. decimal(claim))
  end
end

-- tell_finished tells every process that waits for the record `op`.
local function tell_finished(op)
  local channels = soft('GET', KEYS[6])
  if not channels then return end
  for channel in string.gmatch(channels, '%S+') do
    if is_wake(channel) then redis.call('PUBLISH', channel, 'finished ' .. op) end
  end
  redis.call('DEL', KEYS[6])
end

-- drop gives up the lease if `nonce` holds it, and hands it on.
local function drop(nonce, epochs, token_ttl)
  local token = held_token(nonce)
  if not token then return false end
  redis.call('DEL', KEYS[1])
  if nobody_waits() then return true end
  leave(nonce) -- a reply that was lost may have left it in line
  hand_on(clock(), epochs, token, token_ttl)
  return true
end

-- listen_for has a waiter's process told when the record `op` is finished.
local function listen_for(who)
  local channels = soft('GET', KEYS[6]) or ''
  if not string.find(channels, who.channel, 1, true) then channels = channels .. ' ' .. who.channel end
  redis.call('SET', KEYS[6], channels, 'PX', who.life)
end

-- join puts a caller into the queue, or keeps its place there, for `life` ms. It
-- returns ticket and rank, or nil and a reply.
-- `who` is {nonce, ttl, exec, order, holder, fixed, floor, channel, ticket, life, op}.
local function join(time, who)
  local ticket = who.ticket
  if ticket == '' then ticket = decimal((time[1] - START) * 1e6 + time[2]) end
  if not soft('ZADD', KEYS[3], ticket, who.nonce) then return nil, corrupt(KEYS[3], 'it is not a queue') end
  redis.call('PEXPIRE', KEYS[3], who.life)
  local entry = cjson.encode({
    channel = who.channel, ttl = who.ttl, exec = who.exec, order = who.order,
    holder = who.holder, op = who.op, fixed = who.fixed, floor = who.floor,
    alive = decimal(millis(time) + who.life)})
  if not soft('HSET', KEYS[4], who.nonce, entry) then
    leave(who.nonce)
    return nil, corrupt(KEYS[4], 'it is not the waiters of a queue')
  end
  redis.call('PEXPIRE', KEYS[4], who.life)
  if who.op ~= '' then listen_for(who) end
  return ticket, redis.call('ZRANK', KEYS[3], who.nonce)
end

-- busy_reply says who has the lease and for how long yet; a caller that waits
-- joins the queue in the same step.
local function busy_reply(time, lease, who)
  local reply = {'busy', decimal(lease.left), lease.holder, lease.token, lease.since}
  if who.channel ~= '' then
    local ticket, rank = join(time, who)
    if not ticket then return rank end -- corrupt
    reply[6], reply[7] = ticket, decimal(rank)
  end
  return reply
end

-- yield_to_queue: with the lease free and somebody waiting longer than `who`,
-- the lease goes to them. It returns the lease as it then is, or nil.
local function yield_to_queue(time, who, epochs, token_ttl)
  if nobody_waits() then return nil end
  local nonce = first_waiter(millis(time))
  if not nonce or nonce == who.nonce then return nil end
  hand_on(time, epochs, ZERO, token_ttl)
  return read_lease(KEYS[1])
end
