-- Fencing tokens: epoch * 2^50 + low, written as 19 digits so that two of them
-- compare as strings. A token does not fit a double; its epoch and its low part
-- do, so arithmetic is done on the parts, in base 10^9.
-- Needs: clock.

local TOKEN_DIGITS = 19
local ZERO = '0000000000000000000'
local LOW_SPAN = 1125899906842624 -- 2^50 = 1125899 * 10^9 + 906842624
local MAX_EPOCH = 8191
local START = 1767225600 -- 2026-01-01T00:00:00Z

local function is_token(s)
  return s and #s == TOKEN_DIGITS and not string.find(s, '%D')
end

local function split_token(token)
  local high, low9 = tonumber(string.sub(token, 1, 10)), tonumber(string.sub(token, 11))
  local epoch = math.floor((high * 1e9 + low9) / LOW_SPAN) -- may be off by one
  local function rest() return (high - epoch * 1125899) * 1e9 + (low9 - epoch * 906842624) end
  if rest() < 0 then epoch = epoch - 1 elseif rest() >= LOW_SPAN then epoch = epoch + 1 end
  return epoch, rest()
end

local function join_token(epoch, low)
  local high = math.floor(low / 1e9)
  local low9 = epoch * 906842624 + (low - high * 1e9)
  local carry = math.floor(low9 / 1e9)
  return string.format('%010.0f%09.0f', epoch * 1125899 + high + carry, low9 - carry * 1e9)
end

-- next_token: a token above `last` and `floor` (19 digits each) and not below the
-- clock, in `epoch` or, if they are in a higher one already, in theirs. nil when
-- the numbers are used up.
local function next_token(time, epoch, last, floor)
  local low = math.max(1, (time[1] - START) * 1e6 + time[2])
  local top = last > floor and last or floor
  local token = join_token(epoch, low)
  if token > top and low < LOW_SPAN then return token end -- always, but for a clock set back
  local top_epoch, top_low = split_token(top)
  if top_epoch > epoch then epoch = top_epoch end
  if top_epoch == epoch and top_low >= low then low = top_low + 1 end
  if low >= LOW_SPAN then epoch, low = epoch + 1, 0 end
  if epoch > MAX_EPOCH then return nil end
  return join_token(epoch, low)
end
