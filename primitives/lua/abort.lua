-- abort: an operation ended without a result: drop its record and its lease if
-- they are ours (a record that was undone once is undone again), leave the queue, and
-- hand the lease on.
-- KEYS  1 lease  2 token  3 queue  4 waiters  5 record  6 who waits for it
--       7 tombstone of the nonce
-- ARGV  1 nonce  2 epochs known  3 token ttl, ms
--       4 floor, 19 digits: the next token goes above it, if the lease is still ours
--       5 tombstone ttl, ms
-- returns {'aborted', '1' if the floor was raised}
--         {'corrupt', key, reason}
-- include: clock soft token held epoch grant state undo queue
local nonce = ARGV[1]
redis.pcall('SET', KEYS[7], '1', 'PX', ARGV[5]) -- a begin that is on its way comes too late; not if memory is full
leave(nonce)
local lease = read_lease(KEYS[1])
local last = read_token(KEYS[2])
local raise = lease and last and lease.nonce == nonce and ARGV[4] > last
if raise then redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[3]) end
drop(nonce, ARGV[2], ARGV[3])

local record, bad = read_record(KEYS[5])
if bad then return bad end
if record and record.nonce == nonce and not record.finished and record.state ~= 'undone' then
  drop_record(KEYS[5], record)
  if record.token == '' then tell_finished(KEYS[5]) end -- there was no lease to hand on
end
return {'aborted', raise and '1' or '0'}
