-- If the server's clock went back since the last check, moves everything that waits, leases too, back by as much.
-- KEYS: clock, owed, pending, leases. Returns by how many seconds it went back, '0' if it did not.
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
redis.call('SET', KEYS[1], string.format('%.6f', seconds))
local back = last - seconds
if back <= 0 then return '0' end
for _, key in ipairs({KEYS[2], KEYS[3]}) do
  local waits = redis.call('ZRANGEBYSCORE', key, string.format('(%.6f', seconds), '+inf', 'WITHSCORES')
  for i = 1, #waits, 2 do redis.call('ZADD', key, string.format('%.6f', waits[i + 1] - back), waits[i]) end
end
local leases = redis.call('HGETALL', KEYS[4])
for i = 1, #leases, 2 do
  local owner, till = string.match(leases[i + 1], '^(.-)|(%d+)$')
  if tonumber(till) > seconds then
    redis.call('HSET', KEYS[4], leases[i], string.format('%s|%d', owner, math.ceil(till - back)))
  end
end
return string.format('%.3f', back)
