-- Gives one intake entry to an incident: opens, extends, or reopens it. Changes nothing unless the index is as the
-- caller saw it; then it returns why. Otherwise it returns 'routed', the run JSON (empty if the caller knows it), the
-- time and the waiting events.
-- A person's submission comes without an entry; a repeated one returns the incident that it opened.
-- KEYS: intake, open, last, run, inbox, known, incidents, pending, bundle, parked, and what keeps the incident: of this
-- alert, or of this submission.
-- ARGV: raw entry, target key, incident, opens|extends|reopens|notifies, run JSON, event id, event JSON, bundle
-- (JSON, or 'stored' if it should be there already, or empty for none), the run's version that the caller knows, and how
-- many seconds to keep the incident.
if KEYS[11] and ARGV[1] == '' then
  local before = redis.call('GET', KEYS[11])
  if before then return before end
end
local current = redis.call('HGET', KEYS[2], ARGV[2])
if ARGV[4] == 'extends' then
  if current ~= ARGV[3] then return 'changed' end
-- An alert may follow a reopen that is still in the inbox; a person's second reopen adds nothing.
elseif current and not (ARGV[4] == 'reopens' and current == ARGV[3] and ARGV[1] ~= '') then
  return 'changed'
end
local is_parked = ARGV[4] == 'notifies' and redis.call('HEXISTS', KEYS[10], ARGV[3]) == 1
if (ARGV[4] == 'reopens' or ARGV[4] == 'notifies') and not is_parked and redis.call('HGET', KEYS[3], ARGV[2]) ~= ARGV[3] then
  return 'changed'
end
if ARGV[8] == 'stored' and redis.call('EXISTS', KEYS[9]) == 0 then return 'no bundle' end
if ARGV[1] ~= '' and redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 'gone' end
if KEYS[11] then redis.call('SET', KEYS[11], ARGV[3], 'EX', ARGV[10]) end
local now = TIME()
local at = STAMP(now)
if ARGV[4] == 'opens' then
  redis.call('SET', KEYS[4], ARGV[5])
  redis.call('ZADD', KEYS[7], now[1], ARGV[3])
end
if ARGV[8] ~= '' and ARGV[8] ~= 'stored' then redis.call('SET', KEYS[9], ARGV[8], 'NX') end
-- One that was stored may be about to expire because no incident needed it.
if ARGV[8] ~= '' then redis.call('PERSIST', KEYS[9]) end
-- Together with the event or not at all: the commit that consumes the event decides whether the incident keeps the
-- target.
if redis.call('SADD', KEYS[6], ARGV[6]) == 1 then
  if ARGV[4] == 'opens' or ARGV[4] == 'reopens' then redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) end
  redis.call('RPUSH', KEYS[5], at .. '|' .. ARGV[6] .. '|' .. ARGV[7])
  redis.call('ZADD', KEYS[8], 'NX', now[1], ARGV[3])
end
local run = redis.call('GET', KEYS[4])
if run and string.match(run, '"version":(%d+)') == ARGV[9] then run = '' end
return {'routed', run, at, redis.call('LRANGE', KEYS[5], 0, -1)}
