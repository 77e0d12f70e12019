-- complete: store the memo of an operation, make its record done or failed, set
-- its retention, make undone what it has undone, and hand the lease on; all or nothing.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 record  6 who waits for it
--       7 tombstone of the nonce  8.. records of the operations that this one has undone
-- ARGV  1 nonce  2 epochs known  3 token ttl, ms
--       4 token of the grant, '' if it was begun without a lease
--       5 'done' or 'failed'  6 retention, ms  7 fingerprint, or ''  8 holder
--       9 '1' if the memo was kept  10 memo  11 size of the memo  12 limit
-- returns {'completed'}
--         {'superseded', holder, token}  nothing was stored: somebody began it after us, or resolved it,
--                                        or it was aborted or forgotten; or it undoes something, and
--                                        somebody has had the resource after us
--         {'busy', remaining ms, holder, '', began ms}  nothing was stored: what it undoes is running without a lease
--         {'corrupt', key, reason}
-- A repeat by the nonce that completed the record succeeds.
-- include: soft held
local nonce, token = ARGV[1], ARGV[4]

-- store makes the record finished.
local function store()
  if ARGV[9] == '1' then
    redis.call('HSET', KEYS[5], 'state', ARGV[5], 'how', 'completed', 'memo', ARGV[10])
  else
    redis.call('HSET', KEYS[5], 'state', ARGV[5], 'how', 'completed', 'size', ARGV[11], 'limit', ARGV[12])
  end
end

-- PEXPIRE goes before every HSET, also on a key that is not there: it is never refused
-- when memory is full, and a script that has written may go on writing.

-- The common way: record and lease are ours, and nobody waits.
local stored = soft('HMGET', KEYS[5], 'nonce', 'state', 'undone')
if stored and stored[1] == nonce and stored[2] == 'running' and held_token(nonce)
    and not stored[3] and not KEYS[8] and redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 then
  redis.call('PEXPIRE', KEYS[5], ARGV[6])
  redis.call('DEL', KEYS[1])
  store()
  return {'completed'}
end

-- include: clock token epoch grant state undo queue
local record, bad = read_record(KEYS[5])
if bad then return bad end
if record and (record.nonce ~= nonce or record.how == 'resolved' or record.state == 'undone') then return {'superseded', record.holder, record.token} end
if not record and (token == '' or redis.call('EXISTS', KEYS[7]) == 1) then
  return {'superseded', '', ''} -- aborted or forgotten; or nothing says that nobody came after us
end
local held = token ~= '' and held_token(nonce)
local undoes = KEYS[8] and not (record and record.finished)
if not record or undoes and not held then -- the one lost, as after a flush, or the lease: ours unless somebody came after us
  local last, lease
  last, bad = read_token(KEYS[2])
  if bad then return bad end
  if undoes then lease, bad = read_lease(KEYS[1]) end
  if bad then return bad end
  if last > token or lease and not held then return {'superseded', '', last} end
end

local time, lives = clock(), {}
if undoes then
  for i = 8, #KEYS do
    local other
    other, bad = read_record(KEYS[i])
    if bad then return bad end
    if other and other.token == '' and not other.finished and at_work(other) > 0 then
      return {'busy', decimal(other.left), other.holder, '', decimal(other.began)}
    end
    lives[i] = math.max(other and other.left or 0, tonumber(ARGV[6]))
  end
end

redis.call('PEXPIRE', KEYS[5], kept(record, ARGV[6]))
if held then redis.call('DEL', KEYS[1]) end
if not record then
  redis.call('HSET', KEYS[5], 'nonce', nonce, 'token', token, 'fp', ARGV[7], 'holder', ARGV[8],
    'began', time.now, 'takeovers', '0', 'once', '0')
  redis.call('PEXPIRE', KEYS[5], ARGV[6])
end
if not (record and record.finished) then
  store()
  for i = 8, #KEYS do
    write_undone(KEYS[i], decimal(lives[i]), {nonce = nonce, token = token, holder = ARGV[8], began = time.now, undone = token})
  end
end
tell_finished(KEYS[5])
if held and not nobody_waits() then hand_on(time, ARGV[2], held, ARGV[3], KEYS[5]) end
return {'completed'}
