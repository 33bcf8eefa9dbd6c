-- Owe an effect again later, by nobody. KEYS: effects, owed, owners.
-- ARGV: member, effect id, value as taken, value to keep, after seconds, owner.
-- One that was owed again meanwhile is due at once; one that another process performs by now is left to it.
local now = TIME()
local owner = redis.call('HGET', KEYS[3], ARGV[1])
if owner and owner ~= ARGV[6] then return 0 end
local value = redis.call('HGET', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[1])
if not value then return redis.call('ZREM', KEYS[2], ARGV[1]) end
local after = tonumber(ARGV[5])
if value == ARGV[3] then redis.call('HSET', KEYS[1], ARGV[2], ARGV[4]) end
redis.call('ZADD', KEYS[2], tonumber(now[1]) + tonumber(now[2]) / 1000000 + after, ARGV[1])
return 1
