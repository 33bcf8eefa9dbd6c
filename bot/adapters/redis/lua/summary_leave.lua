-- Removes an incident that has its card. KEYS: summary, lines, waits, granted, cards. ARGV: incident.
-- Returns how many lines are left, and the message's record.
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('SREM', KEYS[4], ARGV[1]) == 1 then
  -- The period of a card begins when people see it.
  local now = TIME()
  redis.call('ZADD', KEYS[5], 'XX', STAMP(now), ARGV[1])
end
return {redis.call('HLEN', KEYS[2]), redis.call('HGET', KEYS[1], 'message') or ''}
