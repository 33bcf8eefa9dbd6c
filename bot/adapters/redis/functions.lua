-- Precedes every script, after `TIME`.

-- A time as text, seconds with micros.
local function STAMP(now) return now[1] .. '.' .. string.format('%06d', now[2]) end

-- The form in which a run is stored.
local function FORM_OF(run) return tonumber(string.match(run, '^{"form":(%d+)') or '1') end

-- Gives `owner` an effect under a lease: nobody else takes it before that ends.
local function LEASE(owed, owners, member, owner, now, lease_seconds)
  redis.call('ZADD', owed, tonumber(now[1]) + tonumber(now[2]) / 1000000 + tonumber(lease_seconds), member)
  redis.call('HSET', owners, member, owner)
end

-- Takes one token from a bucket of the hash `buckets`. Returns the seconds to wait as text, '0' if it was taken.
local function TAKE_TOKEN(buckets, bucket, rate, burst)
  local now = TIME()
  local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
  local tokens = burst
  local stored = redis.call('HGET', buckets, bucket)
  if stored then
    local had, since = string.match(stored, '^(.-)|(.+)$')
    -- A clock that went back removes no token.
    tokens = math.min(burst, tonumber(had) + math.max(seconds - tonumber(since), 0) * rate)
  end
  if tokens < 1 then
    redis.call('HSET', buckets, bucket, string.format('%.6f|%.6f', tokens, seconds))
    -- Never '0.000': that would mean that a token was taken.
    return string.format('%.3f', math.max((1 - tokens) / rate, 0.001))
  end
  redis.call('HSET', buckets, bucket, string.format('%.6f|%.6f', tokens - 1, seconds))
  return '0'
end

