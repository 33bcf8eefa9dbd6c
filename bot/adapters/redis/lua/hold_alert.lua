-- Ends an intake entry whose alert waits for the end of a maintenance window; of each alert the newest is kept.
-- KEYS: intake, held. ARGV: raw entry, fingerprint, kept JSON.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
