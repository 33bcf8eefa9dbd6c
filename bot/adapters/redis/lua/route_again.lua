-- Returns alerts to the intake though they were accepted before: the incident that received them could not keep them.
-- KEYS: intake, intake number. ARGV: truncated, alert JSON.
local number = redis.call('INCR', KEYS[2])
redis.call('RPUSH', KEYS[1], number .. '|' .. STAMP(TIME()) .. '|' .. ARGV[1] .. '|' .. ARGV[2])
return number
