-- Ends an effect: its outcome goes to the inbox, once by id; it is no longer owed unless it was owed again meanwhile.
-- KEYS: run, inbox, known, pending, effects, owed, owners.
-- ARGV: incident, member, effect id, value as taken, owner, (event id, JSON)...
-- Returns whether it is owed again; with an outcome, also the run JSON, the time and the waiting events.
local now = TIME()
local at = STAMP(now)
local found = {0}
local run = #ARGV > 5 and redis.call('GET', KEYS[1])
if run then
  for i = 6, #ARGV, 2 do
    if redis.call('SADD', KEYS[3], ARGV[i]) == 1 then
      redis.call('RPUSH', KEYS[2], at .. '|' .. ARGV[i] .. '|' .. ARGV[i + 1])
      redis.call('ZADD', KEYS[4], 'NX', now[1], ARGV[1])
    end
  end
  found = {0, run, at, redis.call('LRANGE', KEYS[2], 0, -1)}
end
local value = redis.call('HGET', KEYS[5], ARGV[3])
local owner = redis.call('HGET', KEYS[7], ARGV[2])
-- Owed again, and another process performs it by now: that process settles it.
if owner and owner ~= ARGV[5] and value and value ~= ARGV[4] then return found end
redis.call('HDEL', KEYS[7], ARGV[2])
if value == ARGV[4] or not value then
  redis.call('HDEL', KEYS[5], ARGV[3])
  redis.call('ZREM', KEYS[6], ARGV[2])
  return found
end
redis.call('ZADD', KEYS[6], now[1], ARGV[2])
found[1] = 1
return found
