-- Gives intake entries to the open incident of their target, in order, each once. Changes nothing and returns 'changed'
-- unless the target's incident and its run are as the caller knows them, and no alert that may belong to another incident
-- was given to one. Returns 'no bundle' if a bundle that should be there is not. Otherwise returns 'routed', the time and
-- the waiting events.
-- KEYS: intake, open, run, inbox, known, pending, the bundle of each offer, and of each alert what keeps its incident.
-- ARGV: target key, incident, the run's version, how many seconds to keep an alert's incident, how many bundles, for each
-- bundle its JSON or 'stored', and for each entry: raw entry, event id, event JSON, 1 if it may belong to another incident.
local run = redis.call('HGET', KEYS[2], ARGV[1]) == ARGV[2] and redis.call('GET', KEYS[3])
if not run or string.match(run, '"version":(%d+)') ~= ARGV[3] then return {'changed'} end
local last_bundle = 6 + tonumber(ARGV[5])
for number = last_bundle + 1, #KEYS do
  local given = ARGV[last_bundle + 4 * (number - last_bundle) - 1] == '1' and redis.call('GET', KEYS[number])
  if given and given ~= ARGV[2] then return {'changed'} end
end
for number = 7, last_bundle do
  if ARGV[number - 1] == 'stored' and redis.call('EXISTS', KEYS[number]) == 0 then return {'no bundle'} end
end
for number = 7, last_bundle do
  if ARGV[number - 1] ~= 'stored' then redis.call('SET', KEYS[number], ARGV[number - 1], 'NX') end
  -- One that was stored may be about to expire because no incident needed it.
  redis.call('PERSIST', KEYS[number])
end
local now = TIME()
local at = STAMP(now)
for number = last_bundle + 1, #KEYS do
  local each = last_bundle + 4 * (number - last_bundle - 1)
  -- An entry that another process has routed since is not given twice.
  if redis.call('LREM', KEYS[1], 1, ARGV[each]) == 1 and redis.call('SADD', KEYS[5], ARGV[each + 1]) == 1 then
    redis.call('RPUSH', KEYS[4], at .. '|' .. ARGV[each + 1] .. '|' .. ARGV[each + 2])
    redis.call('ZADD', KEYS[6], 'NX', now[1], ARGV[2])
    redis.call('SET', KEYS[number], ARGV[2], 'EX', ARGV[4])
  end
end
return {'routed', at, redis.call('LRANGE', KEYS[4], 0, -1)}
