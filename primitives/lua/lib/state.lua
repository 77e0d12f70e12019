-- Reading what is stored, mistrustfully: whatever does not look like ours is
-- reported with the name of its key and never taken for "absent".
-- Needs: token.

local function corrupt(key, reason)
  return {'corrupt', key, reason}
end

-- read_hash: the fields of a hash and its remaining milliseconds; nil if there is
-- no such key; nil and a reply if it is not ours.
local function read_hash(key, fields)
  local left = redis.call('PTTL', key)
  if left == -2 then return nil end
  if left == -1 then return nil, corrupt(key, 'it has no expiry') end
  local values = redis.pcall('HMGET', key, unpack(fields))
  if values.err then return nil, corrupt(key, 'it is not a hash') end
  local hash = {left = math.max(left, 1)} -- "0 ms left" is still there, and is not "for ever"
  for i, field in ipairs(fields) do hash[field] = values[i] or '' end
  if hash.nonce == '' then return nil, corrupt(key, 'it has no nonce') end
  return hash
end

local function read_lease(key)
  local lease, bad = read_hash(key, {'nonce', 'token', 'exec', 'order', 'holder', 'since'})
  if lease and not is_token(lease.token) then return nil, corrupt(key, 'its token is malformed') end
  return lease, bad
end

local STATES = {running = true, pending = true, done = true, failed = true}

-- read_record: everything but the memo, which may be large. Its token is empty if
-- it was begun without a lease.
local function read_record(key)
  local record, bad = read_hash(key,
    {'state', 'nonce', 'token', 'fp', 'holder', 'began', 'how', 'takeovers', 'once'})
  if not record then return nil, bad end
  if not STATES[record.state] then return nil, corrupt(key, 'its state is unknown') end
  if record.token ~= '' and not is_token(record.token) then
    return nil, corrupt(key, 'its token is malformed')
  end
  record.takeovers, record.began = tonumber(record.takeovers), tonumber(record.began)
  if not record.takeovers or not record.began then
    return nil, corrupt(key, 'a number is malformed')
  end
  record.finished = record.state == 'done' or record.state == 'failed'
  return record
end

-- read_token: the last token issued, or zero.
local function read_token(key)
  local token = redis.pcall('GET', key)
  if type(token) == 'table' then return nil, corrupt(key, 'it is not a string') end
  if not token then return ZERO end
  if not is_token(token) then return nil, corrupt(key, 'it is not a token') end
  return token
end

-- finished_reply: what a finished record answers: its memo, or the size of the
-- one that was too large to keep.
local function finished_reply(key, record)
  local kept = redis.call('HMGET', key, 'memo', 'size', 'limit')
  if kept[1] then return {record.state, kept[1]} end
  if kept[2] and kept[3] then return {'oversize', kept[2], kept[3]} end
  return corrupt(key, 'it is finished and has no memo')
end

local function mismatched(record, fp)
  return fp ~= '' and record.fp ~= '' and record.fp ~= fp
end
