-- Right before a call: not halted, the leases are ours, the breakers have room, the claim is written. One step.
-- KEYS: halt, claims, leases, breaker, node breaker, run, owners.
-- ARGV: incident, call id, what it disrupts or '', lease seconds, breaker limit, breaker seconds, node as JSON or '', room seconds,
-- effect id or '', its owner, lease keys...
local FIRST_LEASE = 11
-- A process that was frozen: another one performs the effect by now, or the incident has gone on without it.
if ARGV[9] ~= '' and redis.call('HGET', KEYS[7], ARGV[1] .. '|' .. ARGV[9]) ~= ARGV[10] then return 'lost' end
local halted = redis.call('HGET', KEYS[1], '*') or redis.call('HGET', KEYS[1], ARGV[1])
if halted then return 'halted' end
local now = TIME()
local seconds = tonumber(now[1])
-- Free accelerators are reserved for one incident while its pods may not be visible yet, and no longer.
local function is_room(key) return string.sub(key, 1, 5) == 'room/' end
-- A lease names the request too: `INC-1/R1|till`, from the call id `INC-1/R1/0`. Earlier versions named the incident alone.
local request = string.match(ARGV[2], '^(.+/.+)/') or ARGV[1]
local function is_ours(owner) return owner == ARGV[1] or string.match(owner, '^([^/]*)/') == ARGV[1] end
for i = FIRST_LEASE, #ARGV do
  local held = redis.call('HGET', KEYS[3], ARGV[i])
  if held then
    local owner, till = string.match(held, '^(.-)|(%d+)$')
    if not is_ours(owner) and tonumber(till) > seconds then
      return is_room(ARGV[i]) and 'room_held' or 'lease_held'
    end
  end
end

-- Why the node breaker refuses this node; nil if it has room. Its hash holds node -> 'taken at|accelerators'.
local function against(node)
  local taken, elsewhere = 0, 0
  for _, gpus in pairs(node.cordoned) do elsewhere = elsewhere + gpus end
  local all = redis.call('HGETALL', KEYS[5])
  for i = 1, #all, 2 do
    local at, gpus = string.match(all[i + 1], '^(%d+)|(%d+)$')
    if tonumber(at) > seconds then
      -- The clock went back: it counts from now.
      at = now[1]
      redis.call('HSET', KEYS[5], all[i], at .. '|' .. gpus)
    end
    if tonumber(at) <= seconds - tonumber(ARGV[6]) then
      redis.call('HDEL', KEYS[5], all[i])
    elseif all[i] ~= node.name then
      taken = taken + 1
      -- Claimed a moment ago by another incident, and not visible in the cluster yet.
      local is_fresh = tonumber(at) > seconds - tonumber(ARGV[4])
      if is_fresh and node.cordoned[all[i]] == nil then elsewhere = elsewhere + tonumber(gpus) end
    end
  end
  if taken >= node.most then return 'node_breaker_open' end
  -- One node is always allowed, or a small fleet could cordon none.
  if node.gpus > 0 and elsewhere > 0 and elsewhere + node.gpus > node.share * node.fleet then return 'too_many_gpus' end
end

local again = redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1
local node = ARGV[7] ~= '' and cjson.decode(ARGV[7])
if not again and ARGV[3] ~= '' then
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', seconds - tonumber(ARGV[6]))
  for _, later in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. seconds, '+inf')) do
    redis.call('ZADD', KEYS[4], seconds, later)
  end
  if not redis.call('ZSCORE', KEYS[4], ARGV[3]) and redis.call('ZCARD', KEYS[4]) >= tonumber(ARGV[5]) then
    return 'breaker_open'
  end
end
if not again and node then
  local refused = against(node)
  if refused then return refused end
  local known = redis.call('HGET', KEYS[5], node.name)
  if not known then redis.call('HSET', KEYS[5], node.name, now[1] .. '|' .. node.gpus) end
  redis.call('EXPIRE', KEYS[5], tonumber(ARGV[6]))
end
if not again and ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[4], 'NX', seconds, ARGV[3])
  redis.call('EXPIRE', KEYS[4], tonumber(ARGV[6]))
end
-- A process that was frozen before this line must not take leases for an incident that is over: nobody would release them.
local run = again and redis.call('GET', KEYS[6])
if run and not string.find(run, '"closed_at":null', 1, true) then return 'already_claimed' end
for i = FIRST_LEASE, #ARGV do
  local lasts = tonumber(is_room(ARGV[i]) and ARGV[8] or ARGV[4])
  redis.call('HSET', KEYS[3], ARGV[i], request .. '|' .. (seconds + lasts))
end
redis.call('HSET', KEYS[2], ARGV[2], now[1])
return again and 'already_claimed' or 'claimed'
