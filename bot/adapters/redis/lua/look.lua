-- One incident as it is now. KEYS: run, inbox. Returns the run JSON, the time and the waiting events; nil if there is
-- none.
local run = redis.call('GET', KEYS[1])
if not run then return nil end
local now = TIME()
return {run, STAMP(now), redis.call('LRANGE', KEYS[2], 0, -1)}
