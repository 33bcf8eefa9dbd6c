-- Changes the record of one incident. KEYS: digest. ARGV: field, record before ('' for none), record from now on.
-- Returns 0, and changes nothing, if the record differs by now.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
