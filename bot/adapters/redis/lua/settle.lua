-- Ends an effect: its outcome goes to the inbox, once by id; it is no longer owed unless it was owed again meanwhile. Then its
-- owner has it under a new lease, as `take` gives it, unless a newer version of the bot stored the run.
-- KEYS: run, inbox, known, pending, effects, owed, owners, shown.
-- ARGV: incident, member, effect id, value as taken, owner, lease seconds, known form, how many of the next belong to the content
-- of Slack, (slot, record)..., (event id, JSON)...
-- Returns the value that was taken or '', the time, the run JSON or '', the waiting events, and the content of Slack if the
-- effect that was taken shows it.
local FIRST_SLOT = 9
local FIRST_EVENT = FIRST_SLOT + tonumber(ARGV[8])
local now = TIME()
local at = STAMP(now)
local has_outcome = #ARGV >= FIRST_EVENT
local run = has_outcome and redis.call('GET', KEYS[1])
local waiting = {}
if run then
  for i = FIRST_EVENT, #ARGV, 2 do
    if redis.call('SADD', KEYS[3], ARGV[i]) == 1 then
      redis.call('RPUSH', KEYS[2], at .. '|' .. ARGV[i] .. '|' .. ARGV[i + 1])
      redis.call('ZADD', KEYS[4], 'NX', now[1], ARGV[1])
    end
  end
  waiting = redis.call('LRANGE', KEYS[2], 0, -1)
end
local value = redis.call('HGET', KEYS[5], ARGV[3])
local owner = redis.call('HGET', KEYS[7], ARGV[2])
-- Owed again, and another process performs it by now: that process settles it.
if owner and owner ~= ARGV[5] and value and value ~= ARGV[4] then return {'', at, run or '', waiting, {}} end
-- Another process may have shown newer content since the lease ended.
if FIRST_EVENT > FIRST_SLOT and owner == ARGV[5] and redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[8], unpack(ARGV, FIRST_SLOT, FIRST_EVENT - 1))
end
if value == ARGV[4] or not value then
  redis.call('HDEL', KEYS[7], ARGV[2])
  redis.call('HDEL', KEYS[5], ARGV[3])
  redis.call('ZREM', KEYS[6], ARGV[2])
  return {'', at, run or '', waiting, {}}
end
run = run or redis.call('GET', KEYS[1])
if run and FORM_OF(run) > tonumber(ARGV[7]) then
  redis.call('HDEL', KEYS[7], ARGV[2])
  redis.call('ZADD', KEYS[6], now[1], ARGV[2])
  return {'', at, run, waiting, {}}
end
LEASE(KEYS[6], KEYS[7], ARGV[2], ARGV[5], now, ARGV[6])
return {value, at, run or '', waiting, ARGV[3] == 'show' and redis.call('HGETALL', KEYS[8]) or {}}
