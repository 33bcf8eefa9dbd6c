-- Takes a token of the pace and stores the attempt to post in one Slack slot of an incident, and the content of others.
-- KEYS: run, shown, buckets. ARGV: bucket, per second, burst, (slot, record)...
-- Returns '0', or the seconds to wait for a token; nil if the incident is not stored. Then it stores nothing.
if redis.call('EXISTS', KEYS[1]) == 0 then return nil end
local wait = TAKE_TOKEN(KEYS[3], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
if wait == '0' then redis.call('HSET', KEYS[2], unpack(ARGV, 4)) end
return wait
