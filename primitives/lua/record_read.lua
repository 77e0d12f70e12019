-- record_read: what is stored about one operation.
-- KEYS  1 record  2 lease
-- returns {'absent'}
--         {state, nonce, token, fingerprint, holder, began ms, takeovers, record left ms,
--          lease left ms or '' if its own lease is gone, '1' if at most once,
--          memo or '', size or '', limit or '', token under which it was undone or ''}
--         {'corrupt', key, reason}
-- include: clock soft token state
local record, bad = read_record(KEYS[1])
if bad then return bad end
if not record then return {'absent'} end
local lease
lease, bad = read_lease(KEYS[2])
if bad then return bad end
local lease_left = lease and lease.nonce == record.nonce and decimal(lease.left) or ''
local memo, size, limit_or_bad
if record.finished then
  memo, size, limit_or_bad = read_memo(KEYS[1])
  if not memo and not size then return limit_or_bad end
end
return {record.state, record.nonce, record.token, record.fp, record.holder, decimal(record.began),
  decimal(record.takeovers), decimal(record.left), lease_left, record.once,
  memo or '', size or '', limit_or_bad or '', record.undone}
