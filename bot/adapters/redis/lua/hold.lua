-- Extends leases while nothing is sent: only those that are the incident's.
-- KEYS: leases. ARGV: incident, lease seconds, lease keys...
local now = TIME()
for i = 3, #ARGV do
  local owner = string.match(redis.call('HGET', KEYS[1], ARGV[i]) or '', '^(.-)|%d+$')
  local is_ours = owner and (owner == ARGV[1] or string.match(owner, '^([^/]*)/') == ARGV[1])
  if is_ours then redis.call('HSET', KEYS[1], ARGV[i], owner .. '|' .. (tonumber(now[1]) + tonumber(ARGV[2]))) end
end
return 1
