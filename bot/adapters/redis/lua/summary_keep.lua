-- Stores the state of the message. KEYS: summary. ARGV: claim, record ('' releases the claim).
-- Returns 0, and stores nothing, if another process has the claim by now.
local held = redis.call('HGET', KEYS[1], 'claim')
if not held or string.match(held, '^(.-)|') ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'claim')
else
  redis.call('HSET', KEYS[1], 'message', ARGV[2])
end
return 1
