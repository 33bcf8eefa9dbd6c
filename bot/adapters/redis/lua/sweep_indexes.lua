-- Removes incidents that are not stored any more from an index. KEYS: a list of incidents, last, then the run of each.
-- ARGV: for each run, the incident, and the key of its target ('' for the list). Returns how many were removed.
local removed = 0
for i = 3, #KEYS do
  local incident, target = ARGV[2 * i - 5], ARGV[2 * i - 4]
  if redis.call('EXISTS', KEYS[i]) == 0 then
    if target == '' then
      removed = removed + redis.call('ZREM', KEYS[1], incident)
    elseif redis.call('HGET', KEYS[2], target) == incident then
      removed = removed + redis.call('HDEL', KEYS[2], target)
    end
  end
end
return removed
