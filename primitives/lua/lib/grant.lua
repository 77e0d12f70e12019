-- Needs: clock, soft, token, epoch.

-- digest_of is the digest in the name of a record.
local function digest_of(name)
  return string.match(name, '[^:]*$')
end

-- grant writes a new lease with a new token. It returns the token, or nil and a
-- reply. `to` is {nonce, ttl, exec, order, op, holder, fixed}: op is the record that the
-- lease is for, or ''; a fixed lease is not taken over.
local function grant(time, to, epochs, floor, token_ttl)
  local epoch, bad = epoch_here(epochs)
  if bad then return nil, bad end
  local last
  last, bad = read_token(KEYS[2])
  if bad then return nil, bad end
  local token = next_token(time, epoch, last, floor)
  if not token then return nil, corrupt(KEYS[2], 'its tokens are used up') end
  redis.call('SET', KEYS[2], token, 'PX', token_ttl)
  redis.call('HSET', KEYS[1], 'nonce', to.nonce, 'token', token, 'exec', to.exec,
    'order', to.order, 'op', digest_of(to.op), 'holder', to.holder, 'fixed', to.fixed, 'since', time.now)
  redis.call('PEXPIRE', KEYS[1], to.ttl)
  return token
end
