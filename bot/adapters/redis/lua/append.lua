-- Appends events to an incident's inbox, each once by its id, stamped with the storage's time.
-- KEYS: run, inbox, known, pending. ARGV: incident, then (event id, event JSON) pairs. Returns -1 if there is no such
-- incident.
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local now = TIME()
local at = STAMP(now)
local stored = 0
for i = 2, #ARGV, 2 do
  if redis.call('SADD', KEYS[3], ARGV[i]) == 1 then
    redis.call('RPUSH', KEYS[2], at .. '|' .. ARGV[i] .. '|' .. ARGV[i + 1])
    stored = stored + 1
  end
end
if stored > 0 then redis.call('ZADD', KEYS[4], 'NX', now[1], ARGV[1]) end
return stored
