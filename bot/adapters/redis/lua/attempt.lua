-- Takes a token of the pace and stores the attempt to post in one Slack slot of an incident. KEYS: run, shown, buckets.
-- ARGV: slot, record, bucket, per second, burst.
-- Returns '0', or the seconds to wait for a token; nil if the incident is not stored. Then it stores nothing.
if redis.call('EXISTS', KEYS[1]) == 0 then return nil end
local wait = TAKE_TOKEN(KEYS[3], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))
if wait == '0' then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
return wait
