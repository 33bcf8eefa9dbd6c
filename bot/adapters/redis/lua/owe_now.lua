-- Makes an effect due now, unless a process performs it. If its JSON is given, an effect that is not owed becomes owed.
-- KEYS: run, effects, owed, owners. ARGV: member, effect id, effect JSON or ''. Returns 1 if it is due now.
if redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 then return 0 end
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then
  local run = redis.call('GET', KEYS[1])
  if ARGV[3] == '' or not run then return 0 end
  redis.call('HSET', KEYS[2], ARGV[2], '0|' .. string.match(run, '"version":(%d+)') .. '|' .. ARGV[3])
end
local now = TIME()
redis.call('ZADD', KEYS[3], now[1], ARGV[1])
return 1
