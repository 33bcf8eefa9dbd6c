-- Begins an epoch, unless one has begun. KEYS: epoch, counter. ARGV: epoch JSON, the number before its first incident.
-- Returns the epoch that counts.
local known = redis.call('GET', KEYS[1])
if known then return known end
redis.call('SET', KEYS[1], ARGV[1])
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return ARGV[1]
