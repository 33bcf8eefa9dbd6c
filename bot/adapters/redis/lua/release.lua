-- Releases the leases of one request, or of a whole incident. What another request of the incident claimed since stays.
-- KEYS: leases. ARGV: incident, request id or ''.
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local owner = string.match(all[i + 1], '^(.-)|%d+$') or ''
  local incident, request = string.match(owner, '^([^/]*)/?(.*)$')
  -- A lease of an earlier version names no request.
  local is_meant = ARGV[2] == '' or request == '' or request == ARGV[2]
  if incident == ARGV[1] and is_meant then redis.call('HDEL', KEYS[1], all[i]) end
end
return 1
