-- When a caller who was refused, and does not wait, had best come back.
-- KEYS[8] is a sorted set: the records of such callers by the end of their turn, in ms.
-- A turn is advice, and bars nobody. One that is not ours counts as empty.
-- Needs: clock, soft.

-- turn_at: the record whose turn is the nth to end, and when, or nil.
local function turn_at(n)
  local found = soft('ZRANGE', KEYS[8], n, n, 'WITHSCORES')
  if not found or not found[1] then return nil end
  return found[1], tonumber(found[2])
end

-- free_after: in how many ms to come back at the soonest. That is when the lease ends,
-- or, for a caller who may ask in vain, when it has been held for as long again as it has
-- been so far: after a second at least, and `most` at most.
local function free_after(time, lease, ttl, most)
  local after = math.min(lease.left, tonumber(ttl)) -- beyond that, a result comes from elsewhere, at any time
  if most == 0 then return after end
  return math.min(after, math.max(1000, math.min(most, millis(time) - tonumber(lease.since))))
end

-- take_turn finds `op` a turn: what is left of its own one, if that is half of it, or the
-- first behind all others in which it may come. `asked` is 'TERM MOST WITHIN'. It returns
-- the ms until it begins; those of WITHIN if that is too late, and then there is none.
local function take_turn(time, op, lease, ttl, asked)
  local term, most, within = string.match(asked, '^(%d+) (%d+) (%d+)$')
  term, within = tonumber(term), tonumber(within)
  local now, after = millis(time), free_after(time, lease, ttl, tonumber(most))
  local first, ends = turn_at(0)
  while first and ends <= now do
    redis.call('ZREM', KEYS[8], first)
    first, ends = turn_at(0)
  end
  local rank = first and soft('ZRANK', KEYS[8], op)
  if rank then
    local _, own = turn_at(rank)
    if own - term / 2 >= now + after then
      return decimal(math.min(math.max(own - term - now, after), within))
    end
  end
  local _, last = turn_at(-1)
  local begins = math.max(now + after, last or 0)
  if begins >= now + within then return decimal(within) end
  -- A full memory, or a key that is not ours, costs the turn, and not the answer that
  -- somebody is at work.
  local taken = redis.pcall('ZADD', KEYS[8], decimal(begins + term), op)
  if type(taken) ~= 'table' then redis.call('PEXPIRE', KEYS[8], decimal(begins + term - now)) end
  return decimal(begins - now)
end
