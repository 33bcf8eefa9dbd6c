-- Stores accepted alerts, all or none, each dedupe key once an hour. Returns how many were new, and the intake if it has
-- no other entries.
-- The two states of an alert end each other: fires, resolved and fires again are three alerts, whatever their startsAt.
-- KEYS: intake, seen, sequence. ARGV: remember_seconds, truncated, then (dedupe key, alert JSON) pairs.
local now = TIME()
local at = STAMP(now)
local seconds = tonumber(now[1])
-- Changes nothing: a full server refuses a script only at its first write, and not if that one removes something.
redis.call('SETRANGE', KEYS[3], 0, '')
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', seconds - tonumber(ARGV[1]))
-- From before the clock went back: an extra repeat is harmless, an alert that is dropped for hours is not.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '(' .. seconds, '+inf')
local stored = 0
for i = 3, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', seconds, ARGV[i]) == 1 then
    local alert, status = string.match(ARGV[i], '^(.*)/([^/]+)$')
    redis.call('ZREM', KEYS[2], alert .. '/' .. (status == 'firing' and 'resolved' or 'firing'))
    local number = redis.call('INCR', KEYS[3])
    redis.call('RPUSH', KEYS[1], number .. '|' .. at .. '|' .. ARGV[2] .. '|' .. ARGV[i + 1])
    stored = stored + 1
  end
end
local is_all = stored > 0 and redis.call('LLEN', KEYS[1]) == stored
return {stored, is_all and redis.call('LRANGE', KEYS[1], 0, -1) or {}}
