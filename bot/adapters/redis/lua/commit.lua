-- Saves one decision: the run, its timeline, its effects; drops the events that it consumed. All of it, or nothing and why.
-- Returns 'committed', the time, the waiting events, the ids of the effects that the owner now has under a lease, and the
-- content of Slack if one of them shows it.
-- KEYS: run, inbox, timeline, effects, owed, owners, pending, due, open, last, incidents, known, shown, claims, parked,
--       then the list of the newest incidents of each of its subjects.
-- ARGV: incident, expected version, run JSON, consumed, due at ('' = none), open|parked|closed, target key, void before, owner,
--       lease seconds, retention seconds, number of entries, entries..., then (effect id, effect JSON) pairs.
local stored = redis.call('GET', KEYS[1])
if not stored then return {'missing'} end
local version = tonumber(string.match(stored, '"version":(%d+)'))
if version ~= tonumber(ARGV[2]) then return {'stale'} end
-- A parked or closed incident continues only while its target is free: nothing is written otherwise.
local held = redis.call('HGET', KEYS[9], ARGV[7])
local was_in_slot = redis.call('HEXISTS', KEYS[15], ARGV[1]) == 0 and string.find(stored, '"closed_at":null', 1, true)
if ARGV[6] == 'open' and held and held ~= ARGV[1] and not was_in_slot then return {'taken'} end
local now = TIME()
redis.call('SET', KEYS[1], ARGV[3])
local consumed = tonumber(ARGV[4])
if consumed > 0 then redis.call('LPOP', KEYS[2], consumed) end
local left = redis.call('LLEN', KEYS[2])
if left == 0 then redis.call('ZREM', KEYS[7], ARGV[1]) else redis.call('ZADD', KEYS[7], now[1], ARGV[1]) end
local entries = tonumber(ARGV[12])
for i = 13, 12 + entries do redis.call('RPUSH', KEYS[3], ARGV[i]) end
for _, id in ipairs(redis.call('HKEYS', KEYS[4])) do
  local visit = string.match(id, '^v(%d+)/')
  if visit and tonumber(visit) < tonumber(ARGV[8]) then
    redis.call('HDEL', KEYS[4], id)
    redis.call('ZREM', KEYS[5], ARGV[1] .. '|' .. id)
    redis.call('HDEL', KEYS[6], ARGV[1] .. '|' .. id)
  end
end
local taken, shown = {}, {}
for i = 13 + entries, #ARGV, 2 do
  local member = ARGV[1] .. '|' .. ARGV[i]
  redis.call('HSET', KEYS[4], ARGV[i], '0|' .. (version + 1) .. '|' .. ARGV[i + 1])
  local owner = redis.call('ZSCORE', KEYS[5], member) and redis.call('HGET', KEYS[6], member)
  if not owner or owner == ARGV[9] then
    LEASE(KEYS[5], KEYS[6], member, ARGV[9], now, ARGV[10])
    taken[#taken + 1] = ARGV[i]
    if ARGV[i] == 'show' then shown = redis.call('HGETALL', KEYS[13]) end
  end
end
if ARGV[5] == '' then redis.call('ZREM', KEYS[8], ARGV[1]) else redis.call('ZADD', KEYS[8], ARGV[5], ARGV[1]) end
-- An incident has its target while it is open and not parked, and while waiting events may reopen it.
if ARGV[6] == 'parked' then redis.call('HSET', KEYS[15], ARGV[1], ARGV[7]) else redis.call('HDEL', KEYS[15], ARGV[1]) end
if ARGV[6] == 'open' and not held then
  redis.call('HSET', KEYS[9], ARGV[7], ARGV[1])
elseif ARGV[6] == 'parked' and held == ARGV[1] then
  redis.call('HDEL', KEYS[9], ARGV[7])
elseif ARGV[6] == 'closed' and held == ARGV[1] and left == 0 then
  redis.call('HDEL', KEYS[9], ARGV[7])
end
for i = 16, #KEYS do
  redis.call('ZADD', KEYS[i], 'NX', now[1], ARGV[1])
  redis.call('ZREMRANGEBYRANK', KEYS[i], 0, -201)  -- nobody reads more of one subject
  if ARGV[6] == 'closed' then redis.call('EXPIRE', KEYS[i], ARGV[11]) else redis.call('PERSIST', KEYS[i]) end
end
if ARGV[6] == 'closed' then
  -- The last one is the newest, though an older one may receive events later.
  local last = redis.call('HGET', KEYS[10], ARGV[7])
  if not last or tonumber(string.match(last, '%d+$')) <= tonumber(string.match(ARGV[1], '%d+$')) then
    redis.call('HSET', KEYS[10], ARGV[7], ARGV[1])
  end
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[12], KEYS[13], KEYS[14]}) do
    redis.call('EXPIRE', key, tonumber(ARGV[11]))
  end
else
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[12], KEYS[13], KEYS[14]}) do redis.call('PERSIST', key) end
end
return {'committed', STAMP(now), redis.call('LRANGE', KEYS[2], 0, -1), taken, shown}
