-- Whether the card of an incident may be posted now. One that must wait gets a line in the summary and a place in the queue.
-- KEYS: summary, lines, waits, granted, cards. ARGV: incident, line, its order in the queue, the order below which incidents need a
-- person, cards in a period, seconds of a period, how many of these only incidents that need a person may take, how many of the
-- first that wait may take a card, how long a card is kept for those before, the longest rest, how long a card may be on its way.
-- Returns the seconds to wait ('0.000': now), how many lines there are, the message's record, and 1 if the incident has to leave
-- the summary once its card is there.
local cards, period, kept, compete, patience = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local is_listed = redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1
local waits = redis.call('ZSCORE', KEYS[3], ARGV[1])
local now = TIME()
local seconds = tonumber(now[1]) + tonumber(now[2]) / 1000000
-- When each card of the period is free again, the last one first. A card that was granted and is not in Slack yet is not free; one
-- from the future was posted before the clock went back.
local function TAKEN()
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', seconds - math.max(period, tonumber(ARGV[11])))
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '(' .. string.format('%.6f', seconds), '+inf')
  local free, found = {}, redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local at = tonumber(found[i + 1]) + period
    if redis.call('SISMEMBER', KEYS[4], found[i]) == 1 then at = math.max(at, seconds + patience) end
    -- Those that are free for longer than anyone waits for its turn need not be counted again.
    if at < seconds - patience then redis.call('ZREM', KEYS[5], found[i]) else table.insert(free, at) end
  end
  table.sort(free, function(a, b) return a > b end)
  return free
end
local taken
-- In how many seconds `wanted` cards of these are left; negative: since when they are.
local function LEFT_IN(wanted, cards_of_the_period)
  if wanted > cards_of_the_period then return math.huge end
  local at = taken[cards_of_the_period - wanted + 1]
  return at and at - seconds or -math.huge
end
local wait = 0
local lines, message = redis.call('HLEN', KEYS[2]), redis.call('HGET', KEYS[1], 'message') or ''
-- Its turn came before, or a person asked for it: only Slack's own pace delays its card now.
local is_granted = redis.call('SISMEMBER', KEYS[4], ARGV[1]) == 1 or (is_listed and not waits)
local granted_at = not waits and tonumber(redis.call('ZSCORE', KEYS[5], ARGV[1]) or '')
if granted_at and granted_at > seconds - period and granted_at <= seconds then
  redis.call('SADD', KEYS[4], ARGV[1])
  is_granted = true
end
local leaves = is_granted or lines > 0 or message ~= ''
if not is_granted then
  taken = TAKEN()
  local before = redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. ARGV[3])
  local ahead, mine = before, cards
  if tonumber(ARGV[3]) >= tonumber(ARGV[4]) then
    -- They get at least one card of a period, however many others need a person.
    local urgent = redis.call('ZCOUNT', KEYS[3], '-inf', '(' .. ARGV[4])
    ahead, mine = before - urgent, math.max(1, cards - kept - urgent)
  end
  -- The first of those that wait come first; one of them that is never shown must not stop the others.
  wait = math.max(0, math.min(LEFT_IN(ahead + 1, mine), LEFT_IN(1, mine) + patience))
  -- Those that wait for hours rest for half the time to their turn, so that none misses it.
  if before >= compete then wait = math.max(wait, math.min(before * period / cards / 2, tonumber(ARGV[10]))) end
  if wait > 0 then
    wait = math.max(wait, 0.001)
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1])
  else
    redis.call('ZREM', KEYS[3], ARGV[1])
    -- Where nothing waits, most cards are in Slack at once: only one that comes back is marked as being on its way.
    if leaves then redis.call('SADD', KEYS[4], ARGV[1]) end
    redis.call('ZADD', KEYS[5], string.format('%.6f', seconds), ARGV[1])
  end
end
return {string.format('%.3f', wait), redis.call('HLEN', KEYS[2]), message, (leaves or wait > 0) and 1 or 0}
