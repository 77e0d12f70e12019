-- What ends a lease asks first. KEYS[1] is the lease, KEYS[3] its queue.
-- Needs: soft.

-- held_token: the token of the lease if `nonce` has it now, else nil. Cheaper than
-- reading all of it.
local function held_token(nonce)
  local lease = soft('HMGET', KEYS[1], 'nonce', 'token')
  if not lease or lease[1] ~= nonce then return nil end
  return lease[2] or ''
end

-- nobody_waits spares most calls the queue: one that is empty does not exist.
local function nobody_waits()
  return redis.call('EXISTS', KEYS[3]) == 0
end
