-- Owes an effect again later, without an owner. KEYS: effects, owed, owners.
-- ARGV: member, effect id, value as taken, value to keep, after seconds, owner.
-- If it was owed again meanwhile it is due at once; if another process performs it by now, it is left to that process.
local now = TIME()
local owner = redis.call('HGET', KEYS[3], ARGV[1])
if owner and owner ~= ARGV[6] then return 0 end
local value = redis.call('HGET', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[1])
if not value then return redis.call('ZREM', KEYS[2], ARGV[1]) end
local after = 0
if value == ARGV[3] then
  after = tonumber(ARGV[5])
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
end
redis.call('ZADD', KEYS[2], tonumber(now[1]) + tonumber(now[2]) / 1000000 + after, ARGV[1])
return 1
