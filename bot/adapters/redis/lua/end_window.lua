-- Removes a planned window unless another one has taken its place.
-- KEYS: planned windows. ARGV: its name, its JSON.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
