-- The server's clock. Nothing else in any script reads time.

-- Numbers leave a script as decimal strings: n..'' would turn 1795975291265895
-- into 1.7959752912659e+15.
local function decimal(n)
  return string.format('%.0f', n)
end

local function millis(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- clock: {seconds, microseconds} since 1970, as numbers, and `now`, the milliseconds
-- as they are stored.
local function clock()
  local t = redis.call('TIME')
  local time = {tonumber(t[1]), tonumber(t[2])}
  time.now = decimal(millis(time))
  return time
end
