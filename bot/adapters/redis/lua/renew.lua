-- Extends a lease. KEYS: owed, owners. ARGV: member, owner, lease seconds. Returns 0 if it was lost.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
local now = TIME()
redis.call('ZADD', KEYS[1], 'XX', tonumber(now[1]) + tonumber(ARGV[3]), ARGV[1])
return 1
