-- Ends an intake entry that matched no playbook; keeps it in a bounded list. KEYS: intake, unmatched. ARGV: raw entry,
-- kept JSON, bound.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
if ARGV[2] ~= '' then
  redis.call('LPUSH', KEYS[2], ARGV[2])
  redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[3]) - 1)
end
return 1
