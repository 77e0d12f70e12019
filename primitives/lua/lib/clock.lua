-- The server's clock. Nothing else in any script reads time.

-- clock: {seconds, microseconds} since 1970, as numbers.
local function clock()
  local t = redis.call('TIME')
  return {tonumber(t[1]), tonumber(t[2])}
end

local function millis(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Numbers leave a script as decimal strings: n..'' would turn 1795975291265895
-- into 1.7959752912659e+15.
local function decimal(n)
  return string.format('%.0f', n)
end
