-- Adds a sample to those of a watch. KEYS: samples. ARGV: sample, seconds to keep them. Returns all, oldest first.
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return redis.call('LRANGE', KEYS[1], 0, -1)
