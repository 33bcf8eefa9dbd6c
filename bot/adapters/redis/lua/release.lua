-- Releases every lease of one incident. KEYS: leases. ARGV: incident.
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if string.match(all[i + 1], '^(.-)|%d+$') == ARGV[1] then redis.call('HDEL', KEYS[1], all[i]) end
end
return 1
