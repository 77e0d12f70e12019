-- resolve: an operator makes an interrupted operation done, with a memo of theirs.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 record  6 who waits for it
-- ARGV  1 state and 2 nonce that the caller saw  3 retention, ms  4 memo
-- returns {'resolved'}
--         {'changed'}                           not what the caller saw
--         {'busy', remaining ms, holder, token, began ms}   somebody is at work
--         {'corrupt', key, reason}
-- A repeat with the same memo succeeds.
-- include: clock soft token held epoch grant state queue
local record, bad = read_record(KEYS[5])
if bad then return bad end
if not record or record.nonce ~= ARGV[2] then return {'changed'} end
if record.how == 'resolved' and redis.call('HGET', KEYS[5], 'memo') == ARGV[4] then return {'resolved'} end
if record.finished or record.state ~= ARGV[1] then return {'changed'} end
local lease
lease, bad = read_lease(KEYS[1])
if bad then return bad end
local left = at_work(record, lease)
if left > 0 then
  return {'busy', decimal(left), record.holder, record.token, decimal(record.began)}
end
redis.call('HSET', KEYS[5], 'state', 'done', 'how', 'resolved', 'memo', ARGV[4])
redis.call('PEXPIRE', KEYS[5], kept(record, ARGV[3]))
tell_finished(KEYS[5])
return {'resolved'}
