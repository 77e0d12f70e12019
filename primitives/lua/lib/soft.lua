-- Commands on keys that may hold anything.

local function corrupt(key, reason)
  return {'corrupt', key, reason}
end

-- soft runs a command on a key that may hold anything: nil if that is of another
-- type. Every other error ends the script as redis.call would end it.
local function soft(command, ...)
  local r = redis.pcall(command, ...)
  if type(r) ~= 'table' or not r.err then return r end
  if string.find(r.err, 'WRONGTYPE', 1, true) then return nil end
  if string.find(r.err, "can't ", 1, true) then error(r.err .. ' (' .. command .. ')') end -- by its ACL
  return redis.call(command, ...)
end
