-- record_begin: start an operation whose record alone guards it, without a lease.
-- KEYS  1 record  2 lease
-- ARGV  1 nonce  2 record ttl, ms  3 holder  4 fingerprint, or ''
--       5 reclaim after, ms, '' for never  6 limit of takeovers, 0 for none
-- returns {'begun' | 'reclaimed', '', takeovers [, token under which it was undone]}
--         {'done' | 'failed', memo}
--         {'oversize', size, limit}
--         {'busy', remaining ms, holder, token, began ms}
--         {'mismatch', fingerprint of the record, holder}
--         {'poisoned', takeovers, holder}
--         {'unknown', holder, began ms}
--         {'corrupt', key, reason}
-- include: clock soft token state
local nonce, fp = ARGV[1], ARGV[4]
local at = millis(clock())
local record, bad = read_record(KEYS[1])
if bad then return bad end

local how, takeovers = 'begun', 0
local undone = record and record.undone ~= '' and record.undone or nil
if record and record.state ~= 'undone' then
  if mismatched(record, fp) then return {'mismatch', record.fp, record.holder} end
  if record.finished then return finished_reply(KEYS[1], record) end
  how, takeovers = record.how, record.takeovers
  if record.nonce ~= nonce then
    local lease
    lease, bad = read_lease(KEYS[2])
    if bad then return bad end
    local left = record.left
    if lease and lease.nonce == record.nonce then -- a guarded run, alive while its lease is
      left = lease.left
    elseif ARGV[5] ~= '' then
      left = record.began + tonumber(ARGV[5]) - at
    end
    if left > 0 then
      return {'busy', decimal(left), record.holder, record.token, decimal(record.began)}
    end
    if record.once == '1' then return {'unknown', record.holder, decimal(record.began)} end
    how, takeovers = 'reclaimed', takeovers + 1
    local limit = tonumber(ARGV[6])
    if limit > 0 and takeovers > limit then
      return {'poisoned', decimal(record.takeovers), record.holder}
    end
  end
  if record.fp ~= '' then fp = record.fp end
end
redis.call('HSET', KEYS[1], 'state', 'running', 'nonce', nonce, 'token', '', 'fp', fp,
  'holder', ARGV[3], 'began', decimal(at), 'how', how, 'takeovers', decimal(takeovers), 'once', '0')
redis.call('PEXPIRE', KEYS[1], kept(record, ARGV[2]))
return {how, '', decimal(takeovers), undone}
