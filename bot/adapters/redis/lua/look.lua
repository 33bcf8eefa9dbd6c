-- One incident as it is now. KEYS: run, inbox. Returns the run JSON, the time and the events that wait; nil when there is none.
local run = redis.call('GET', KEYS[1])
if not run then return nil end
local now = TIME()
return {run, now[1] .. '.' .. string.format('%06d', now[2]), redis.call('LRANGE', KEYS[2], 0, -1)}
