-- What stands between an alert and a new incident of its target: the open one, the last closed one, the parked ones,
-- the time, and the planned windows. Nothing does: then also the number of that incident.
-- KEYS: open, last, parked, planned windows, epoch, counter. ARGV: the target's key, and the epoch in which a number may be taken
-- ('' = none, '*' = any).
local parked = {}
local every = redis.call('HGETALL', KEYS[3])
for at = 1, #every, 2 do
    if every[at + 1] == ARGV[1] then
        parked[#parked + 1] = every[at]
    end
end
local open, last = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1])
local windows, number = redis.call('HVALS', KEYS[4]), ''
if not open and not last and #parked == 0 and #windows == 0 then number = NEXT_NUMBER(KEYS[5], KEYS[6], ARGV[2]) or '' end
return {open or '', last or '', STAMP(TIME()), parked, windows, number}
