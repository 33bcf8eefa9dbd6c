-- Returns a held alert to the intake, once, unless a newer one has replaced it.
-- KEYS: held, intake, intake number. ARGV: fingerprint, kept JSON, truncated, alert JSON.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
local number = redis.call('INCR', KEYS[3])
-- To the front: it is older than all that waits there, such as its own resolve.
redis.call('LPUSH', KEYS[2], number .. '|' .. STAMP(TIME()) .. '|' .. ARGV[3] .. '|' .. ARGV[4])
return 1
