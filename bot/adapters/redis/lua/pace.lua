-- Takes one token from a bucket. KEYS: buckets. ARGV: bucket, per second, burst. Returns the seconds to wait, '0' if
-- taken.
return TAKE_TOKEN(KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
