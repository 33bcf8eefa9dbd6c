-- Claims the summary unless it is claimed. KEYS: summary. ARGV: claim, seconds. Returns 1 if it was claimed.
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
local held = redis.call('HGET', KEYS[1], 'claim')
local till = held and tonumber(string.match(held, '|(.+)$')) or 0
-- A claim that lasts longer than allowed is from before the clock went back.
if till > seconds and till <= seconds + tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'claim', string.format('%s|%.3f', ARGV[1], seconds + tonumber(ARGV[2])))
return 1
