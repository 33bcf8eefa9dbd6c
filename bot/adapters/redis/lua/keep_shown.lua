-- Stores the content of Slack slots of an incident. KEYS: run, shown. ARGV: (slot, record)...
-- Returns 0 and stores nothing if the incident is not stored: Redis may have lost it a moment ago.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV))
return 1
