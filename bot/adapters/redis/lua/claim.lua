-- Right before a call: not halted, the leases are ours, the breaker has room, the claim is written. One step.
-- KEYS: halt, claims, leases, breaker. ARGV: incident, call id, counts|free, lease seconds, breaker limit, breaker seconds, lease keys...
local halted = redis.call('HGET', KEYS[1], '*') or redis.call('HGET', KEYS[1], ARGV[1])
if halted then return 'halted' end
local now = TIME()
local seconds = tonumber(now[1])
for i = 7, #ARGV do
  local held = redis.call('HGET', KEYS[3], ARGV[i])
  if held then
    local owner, till = string.match(held, '^(.-)|(%d+)$')
    if owner ~= ARGV[1] and tonumber(till) > seconds then return 'lease_held' end
  end
end
local again = redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1
if not again and ARGV[3] == 'counts' then
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', seconds - tonumber(ARGV[6]))
  local change = string.match(ARGV[2], '^(.*)/[^/]+$') or ARGV[2]
  if not redis.call('ZSCORE', KEYS[4], change) and redis.call('ZCARD', KEYS[4]) >= tonumber(ARGV[5]) then
    return 'breaker_open'
  end
  redis.call('ZADD', KEYS[4], 'NX', seconds, change)
  redis.call('EXPIRE', KEYS[4], tonumber(ARGV[6]))
end
for i = 7, #ARGV do redis.call('HSET', KEYS[3], ARGV[i], ARGV[1] .. '|' .. (seconds + tonumber(ARGV[4]))) end
redis.call('HSET', KEYS[2], ARGV[2], now[1])
return again and 'already_claimed' or 'claimed'
