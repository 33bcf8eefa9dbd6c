-- The number of the next incident. KEYS: epoch, counter. ARGV: the epoch that this process knows.
-- Returns nothing if that epoch is over: the counter may have restarted.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
return redis.call('INCR', KEYS[2])
