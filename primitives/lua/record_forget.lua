-- record_forget: drop a record that nobody is working on.
-- KEYS  1 record  2 lease  3 tombstone of the nonce
-- ARGV  1 state and 2 nonce that the caller saw  3 tombstone ttl, ms
-- returns {'forgotten'}
--         {'absent'}
--         {'changed', state}                    not what the caller saw
--         {'busy', remaining ms, holder, token, began ms}   somebody is at work
--         {'corrupt', key, reason}
-- include: clock soft token state undo
local record, bad = read_record(KEYS[1])
if bad then return bad end
if not record then return {'absent'} end
if record.nonce ~= ARGV[2] or record.state ~= ARGV[1] then
  return {'changed', record.state}
end
local lease
lease, bad = read_lease(KEYS[2])
if bad then return bad end
local left = at_work(record, lease)
if left > 0 and not record.finished then
  return {'busy', decimal(left), record.holder, record.token, decimal(record.began)}
end
drop_record(KEYS[1], record)
redis.call('SET', KEYS[3], '1', 'PX', ARGV[3]) -- its holder may wake up and complete it
return {'forgotten'}
