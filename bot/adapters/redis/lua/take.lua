-- Takes one owed effect under a lease. Its owner may take it again; no other process can. One of a run that a newer version
-- of the bot stored is left to that version.
-- Returns its value, the time, the run or '', and the content of Slack if the effect shows it; or nil.
-- KEYS: effects, owed, owners, run, shown. ARGV: member, effect id, owner, lease seconds, known form.
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
local score = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not score then return nil end
if tonumber(score) > seconds and redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[3] then return nil end
local run = redis.call('GET', KEYS[4])
if run and FORM_OF(run) > tonumber(ARGV[5]) then return nil end
local value = redis.call('HGET', KEYS[1], ARGV[2])
if not value then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HDEL', KEYS[3], ARGV[1])
  return nil
end
LEASE(KEYS[2], KEYS[3], ARGV[1], ARGV[3], now, ARGV[4])
local shown = ARGV[2] == 'show' and redis.call('HGETALL', KEYS[5]) or {}
-- A list ends at its first nil: a missing run needs a placeholder.
return {value, STAMP(now), run or '', shown}
