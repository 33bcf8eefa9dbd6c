-- Keep what is known of the message. KEYS: digest. ARGV: claim, record ('' gives the word back).
-- Returns 0, and keeps nothing, when the claim is somebody else's by now.
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
