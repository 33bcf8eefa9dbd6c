-- Incidents whose inbox has waited for a second, and those whose deadline has passed, oldest first.
-- KEYS: pending, due. ARGV: how many of each.
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
local function before(key, score)
  return redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.6f', score), 'LIMIT', 0, ARGV[1])
end
return {before(KEYS[1], seconds - 1), before(KEYS[2], seconds)}
