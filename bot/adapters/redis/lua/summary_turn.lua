-- Whether the card of an incident may be posted now. One that must wait gets a line in the summary and a place in the queue.
-- KEYS: summary, lines, waits, granted, pace. ARGV: incident, line, bucket, cards per second, burst, how many of the oldest that
-- wait may take a card, seconds to wait for the others.
-- Returns the seconds to wait ('0': now), how many wait before it, how many lines there are, and the message's record.
local number = tonumber(string.match(ARGV[1], '%d+$'))
local is_listed = redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1
local waits = redis.call('ZSCORE', KEYS[3], ARGV[1])
local older, wait = 0, '0'
-- Its turn came before: only Slack's own pace delays its card now.
local is_granted = redis.call('SISMEMBER', KEYS[4], ARGV[1]) == 1 or (is_listed and not waits)
if not is_granted then
  older = redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. number)
  wait = ARGV[7]
  if older < tonumber(ARGV[6]) then wait = TAKE_TOKEN(KEYS[5], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])) end
  if tonumber(wait) > 0 then
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    redis.call('ZADD', KEYS[3], number, ARGV[1])
  else
    redis.call('ZREM', KEYS[3], ARGV[1])
    redis.call('SADD', KEYS[4], ARGV[1])
  end
end
return {wait, older, redis.call('HLEN', KEYS[2]), redis.call('HGET', KEYS[1], 'message') or ''}
