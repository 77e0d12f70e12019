-- begin: start one guarded operation: look at its record, take the lease of its
-- resource, issue the token, mark the record running; all or nothing.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 record  6 who waits for it
--       7 tombstone of the nonce  8 turns, if it asks for one
-- ARGV  1 nonce  2 lease ttl, ms  3 holder
--       4 epochs known  5 floor, 19 digits  6 token ttl, ms
--       7 channel of a caller that waits, else ''  8 its ticket, '' at first  9 its life in the queue, ms
--       10 record ttl, ms  11 execution, or ''  12 order of the attempt in it
--       13 fingerprint, or ''  14 '1' if a newer attempt may take over
--       15 '1' for at most once  16 limit of takeovers, 0 for none
--       17 the turn that it asks for if it is refused, or '': its term, how long it would
--       wait before it asks in vain (0: it would not), and how late it may begin, in ms
-- returns {'begun' | 'reclaimed' | 'takeover', token, takeovers [, token under which it was undone]}
--         {'done' | 'failed', memo}
--         {'oversize', size, limit}
--         {'busy', remaining ms, holder, token, since ms [, ticket, place in the queue | , ms until its turn]}
--         {'mismatch', fingerprint of the record, holder}
--         {'poisoned', takeovers, holder}
--         {'unknown', holder, began ms}
--         {'changed', holder}  an older attempt of the execution holds the lease for another record
--         {'lost'}         the caller has given it up meanwhile
--         {'unregistered', replication id, the id that it follows}  nothing was granted
--         {'corrupt', key, reason}
-- A repeat with the nonce of the present holder gets the same grant again.
-- include: clock soft token epoch grant
local nonce, ttl, epochs, token_ttl = ARGV[1], ARGV[2], ARGV[4], ARGV[6]
local exec, order, fp = ARGV[11], ARGV[12], ARGV[13]
local once, limit = ARGV[15] == '1', tonumber(ARGV[16])
local time = clock()
local who = {nonce = nonce, ttl = ttl, exec = exec, order = order, holder = ARGV[3], op = KEYS[5],
  fixed = (once or ARGV[14] ~= '1') and '1' or '0', floor = ARGV[5], channel = ARGV[7], ticket = ARGV[8], life = tonumber(ARGV[9])}

-- start marks the record running.
local function start(how, token, takeovers, undone, life)
  redis.call('HSET', KEYS[5], 'state', 'running', 'nonce', nonce, 'token', token, 'fp', fp,
    'holder', who.holder, 'began', time.now, 'how', how,
    'takeovers', takeovers, 'once', once and '1' or '0')
  redis.call('PEXPIRE', KEYS[5], life or ARGV[10])
  return {how, token, takeovers, undone}
end

-- The common way: it is new, nobody has the resource, and nobody waits.
if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[7]) == 0 then
  local token, bad = grant(time, who, epochs, ARGV[5], token_ttl)
  return bad or start('begun', token, '0')
end

-- include: state held queue turn
if redis.call('EXISTS', KEYS[7]) == 1 then return {'lost'} end
local lease, bad = read_lease(KEYS[1])
if bad then return bad end
local record
record, bad = read_record(KEYS[5])
if bad then return bad end
local undone = record and record.undone ~= '' and record.undone or nil
local life = kept(record, ARGV[10])
if record and record.state == 'undone' then record = nil end

-- refuse: an answer that ends this call without a grant. A waiter leaves the
-- queue and passes on what it was handed.
local function refuse(reply)
  if who.ticket ~= '' then leave(nonce) end
  if lease and lease.nonce == nonce then drop(nonce, epochs, token_ttl) end
  return reply
end

once = once or (record and record.once == '1')
if record then
  if mismatched(record, fp) then return refuse({'mismatch', record.fp, record.holder}) end
  if record.finished then return refuse(finished_reply(KEYS[5], record)) end
  if record.token == '' then -- begun without a lease: alive until it expires
    if who.channel ~= '' then listen_for(who) end
    return refuse({'busy', decimal(record.left), record.holder, '', decimal(record.began)})
  end
end

local how, floor = 'begun', ARGV[5]
if not lease then
  lease = yield_to_queue(time, who, epochs, token_ttl)
end
if lease and lease.nonce ~= nonce then
  local newer = exec ~= '' and lease.exec == exec and order > lease.order
  if newer and lease.op ~= '' and lease.op ~= digest_of(KEYS[5]) then return refuse({'changed', lease.holder}) end
  if not newer or lease.fixed or who.fixed == '1' then
    local reply = busy_reply(time, lease, who)
    -- Who is at work on this very record brings the result for all at once.
    if ARGV[17] ~= '' and lease.op ~= digest_of(KEYS[5]) then
      reply[6] = take_turn(time, KEYS[5], lease, ttl, ARGV[17])
    end
    return reply
  end
  how = 'takeover'
  if lease.token > floor then floor = lease.token end
end

local takeovers = 0
if record then
  takeovers = record.takeovers
  if record.nonce == nonce then
    how = record.how
  else -- whoever ran it has crashed, or is being taken over
    if once then return refuse({'unknown', record.holder, decimal(record.began)}) end
    takeovers = takeovers + 1
    if limit > 0 and takeovers > limit then
      return refuse({'poisoned', decimal(record.takeovers), record.holder})
    end
    if how == 'begun' then how = 'reclaimed' end
  end
end

local token
if lease and lease.nonce == nonce then -- our first reply was lost, or we were handed it
  token = lease.token
  redis.call('PEXPIRE', KEYS[1], ttl)
else
  token, bad = grant(time, who, epochs, floor, token_ttl)
  if bad then return bad end
end
if who.ticket ~= '' then leave(nonce) end
if record and record.fp ~= '' then fp = record.fp end
return start(how, token, decimal(takeovers), undone, life)
