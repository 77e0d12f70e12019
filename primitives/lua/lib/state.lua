-- Reading what is stored, mistrustfully: whatever does not look like ours is
-- reported with the name of its key and never taken for "absent".
-- Needs: clock, soft, token.

-- is_count: a whole number that is ours, below 2^53.
local function is_count(s)
  return #s <= 15 and string.find(s, '^%d+$')
end

-- read_hash: the values of a hash's fields, its nonce first, and its remaining
-- milliseconds; nil if there is no such key; nil, nil and a reply if it is not ours.
local function read_hash(key, ...)
  local left = redis.call('PTTL', key)
  if left == -2 then return nil end
  if left == -1 then return nil, nil, corrupt(key, 'it has no expiry') end
  local values = soft('HMGET', key, ...)
  if not values then return nil, nil, corrupt(key, 'it is not a hash') end
  if (values[1] or '') == '' then return nil, nil, corrupt(key, 'it has no nonce') end
  return values, math.max(left, 1) -- "0 ms left" is still there, and is not "for ever"
end

local function read_lease(key)
  local v, left, bad = read_hash(key, 'nonce', 'token', 'exec', 'order', 'holder', 'since', 'fixed', 'op')
  if not v then return nil, bad end
  if not is_token(v[2]) then return nil, corrupt(key, 'its token is malformed') end
  if not is_count(v[6] or '') then return nil, corrupt(key, 'its time is malformed') end
  return {left = left, nonce = v[1], token = v[2], exec = v[3] or '', order = v[4] or '',
    holder = v[5] or '', since = v[6], fixed = v[7] == '1', op = v[8] or ''}
end

-- read_record: everything but the memo, which may be large. Its token is empty if
-- it was begun without a lease; `undone` is the token under which it was undone last,
-- or empty. In the state 'undone' nothing runs and nothing is done: it is as absent,
-- but for that token.
local function read_record(key)
  local v, left, bad = read_hash(key,
    'nonce', 'state', 'token', 'fp', 'holder', 'began', 'how', 'takeovers', 'once', 'undone')
  if not v then return nil, bad end
  local state, token = v[2], v[3] or ''
  local finished = state == 'done' or state == 'failed'
  local undone = v[10] or ''
  if not finished and state ~= 'running' and state ~= 'pending' and state ~= 'undone' then
    return nil, corrupt(key, 'its state is unknown')
  end
  if token ~= '' and not is_token(token) or undone ~= '' and not is_token(undone) or state == 'undone' and undone == '' then
    return nil, corrupt(key, 'its token is malformed')
  end
  if not is_count(v[6] or '') or not is_count(v[8] or '') then
    return nil, corrupt(key, 'a number is malformed')
  end
  return {left = left, nonce = v[1], state = state, finished = finished, token = token,
    fp = v[4] or '', holder = v[5] or '', began = tonumber(v[6]), how = v[7] or '',
    takeovers = tonumber(v[8]), once = v[9] or '', undone = undone}
end

-- kept is how long a record is kept that is to be for `ttl` ms: not shorter than it is kept
-- already, if it was undone once, for that must not be forgotten sooner.
local function kept(record, ttl)
  if record and record.undone ~= '' then return decimal(math.max(record.left, tonumber(ttl))) end
  return ttl
end

-- at_work: for how long whoever runs an unfinished record counts as alive, in ms: while
-- its lease lasts, or, begun without one, until it expires. 0: nobody is at work.
local function at_work(record, lease)
  if record.state == 'undone' then return 0 end
  if record.token == '' then return record.left end
  return lease and lease.nonce == record.nonce and lease.left or 0
end

-- read_memo: the memo of a finished record, or nil, size and limit of the one that
-- was too large to keep, or nil, nil and a reply if there is neither.
local function read_memo(key)
  local kept = redis.call('HMGET', key, 'memo', 'size', 'limit')
  if kept[1] then return kept[1] end
  if kept[2] and kept[3] and is_count(kept[2]) and is_count(kept[3]) then return nil, kept[2], kept[3] end
  return nil, nil, corrupt(key, 'it is finished and has no memo')
end

-- finished_reply is what a finished record answers to whoever asks for its result.
local function finished_reply(key, record)
  local memo, size, limit_or_bad = read_memo(key)
  if memo then return {record.state, memo} end
  if size and record.state == 'failed' then return {'failed', ''} end
  if size then return {'oversize', size, limit_or_bad} end
  return limit_or_bad
end

-- mismatched: both fingerprints are there, and of one kind, and differ. A fingerprint is
-- 'digest' or 'kind:digest'.
local function mismatched(record, fp)
  if fp == '' or record.fp == '' or record.fp == fp then return false end
  return string.match(fp, '^%l+:') == string.match(record.fp, '^%l+:')
end
