-- Takes one token from a bucket. KEYS: buckets. ARGV: bucket, per second, burst. Returns the seconds to wait, '0' if
-- taken.
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
local rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, at = burst, seconds
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if stored then
  local had, since = string.match(stored, '^(.-)|(.+)$')
  -- A clock that went back removes no token.
  tokens = math.min(burst, tonumber(had) + math.max(seconds - tonumber(since), 0) * rate)
end
if tokens < 1 then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.6f|%.6f', tokens, at))
  -- Never '0.000': that would mean that a token was taken.
  return string.format('%.3f', math.max((1 - tokens) / rate, 0.001))
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.6f|%.6f', tokens - 1, at))
return '0'
