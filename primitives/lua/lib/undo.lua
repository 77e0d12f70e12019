-- Records that were undone. Needs: state.

-- write_undone makes a record undone, whatever it was, for `life` ms. `by` is what it then
-- says of itself: {nonce, token, holder, began, undone}. The first write is one that is
-- never refused when memory is full.
local function write_undone(key, life, by)
  redis.call('PEXPIRE', key, life)
  redis.call('HDEL', key, 'memo', 'size', 'limit')
  redis.call('HSET', key, 'state', 'undone', 'how', 'undone', 'nonce', by.nonce, 'token', by.token, 'fp', '',
    'holder', by.holder, 'began', by.began, 'takeovers', '0', 'once', '0', 'undone', by.undone)
  redis.call('PEXPIRE', key, life)
end

-- drop_record ends a record without a result. What was undone once stays so: a run after
-- that must not pass for one before it.
local function drop_record(key, record)
  if record.undone == '' then
    redis.call('DEL', key)
    return
  end
  write_undone(key, decimal(record.left), {nonce = record.nonce, token = record.token, holder = record.holder,
    began = decimal(record.began), undone = record.undone})
end
