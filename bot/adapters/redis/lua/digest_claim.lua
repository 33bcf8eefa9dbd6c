-- Take the word for the digest, unless somebody has it. KEYS: digest. ARGV: claim, seconds. Returns 1 when it was taken.
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
local held = redis.call('HGET', KEYS[1], 'claim')
local till = held and tonumber(string.match(held, '|(.+)$')) or 0
-- One that lasts longer than a claim can is from before the clock went back.
if till > seconds and till <= seconds + tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], 'claim', string.format('%s|%.3f', ARGV[1], seconds + tonumber(ARGV[2])))
return 1
