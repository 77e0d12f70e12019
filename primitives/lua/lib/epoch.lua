-- The epoch of the tokens that this server grants. `epochs` is what the caller knows:
-- "0" if tokens are not strict, else "ID EPOCH ID EPOCH ..." for replication ids.

-- epoch_here: the epoch, or nil and a reply that names the id that has none yet, and
-- the id that it follows: that of the primary that a promoted replica replaces.
local function epoch_here(epochs)
  if epochs == '0' then return 0 end
  local info = redis.call('INFO', 'replication')
  local id = string.match(info, 'master_replid:(%x+)') or ''
  for known, epoch in string.gmatch(epochs, '(%x+) (%d+)') do
    if known == id then return tonumber(epoch) end
  end
  return nil, {'unregistered', id, string.match(info, 'master_replid2:(%x+)') or ''}
end
