-- Ends an effect: its outcome goes to the inbox, once by id; it is no longer owed unless it was owed again meanwhile.
-- KEYS: run, inbox, known, pending, effects, owed, owners.
-- ARGV: incident, member, effect id, value as taken, owner, (event id, JSON)...
local now = TIME()
local at = STAMP(now)
if redis.call('EXISTS', KEYS[1]) == 1 then
  for i = 6, #ARGV, 2 do
    if redis.call('SADD', KEYS[3], ARGV[i]) == 1 then
      redis.call('RPUSH', KEYS[2], at .. '|' .. ARGV[i] .. '|' .. ARGV[i + 1])
      redis.call('ZADD', KEYS[4], 'NX', now[1], ARGV[1])
    end
  end
end
local value = redis.call('HGET', KEYS[5], ARGV[3])
local owner = redis.call('HGET', KEYS[7], ARGV[2])
-- Owed again, and another process performs it by now: that process settles it.
if owner and owner ~= ARGV[5] and value and value ~= ARGV[4] then return 0 end
redis.call('HDEL', KEYS[7], ARGV[2])
if value == ARGV[4] or not value then
  redis.call('HDEL', KEYS[5], ARGV[3])
  redis.call('ZREM', KEYS[6], ARGV[2])
  return 0
end
redis.call('ZADD', KEYS[6], now[1], ARGV[2])
return 1
