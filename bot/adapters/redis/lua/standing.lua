-- What stands between an alert and a new incident of its target: the open one, the last closed one, the parked ones,
-- the time, the planned windows, and the incident that was given this alert last.
-- KEYS: open, last, parked, planned windows, what keeps the alert's incident. ARGV: the target's key.
local parked = {}
local every = redis.call('HGETALL', KEYS[3])
for at = 1, #every, 2 do
    if every[at + 1] == ARGV[1] then
        parked[#parked + 1] = every[at]
    end
end
local target = ARGV[1]
return {redis.call('HGET', KEYS[1], target) or '', redis.call('HGET', KEYS[2], target) or '', STAMP(TIME()), parked,
  redis.call('HVALS', KEYS[4]), redis.call('GET', KEYS[5]) or ''}
