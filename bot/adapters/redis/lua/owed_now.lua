-- Effects that are due, oldest first. KEYS: owed. ARGV: how many.
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', STAMP(TIME()), 'LIMIT', 0, ARGV[1])
