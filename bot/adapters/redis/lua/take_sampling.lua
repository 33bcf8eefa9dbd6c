-- Lets one process sample a cluster's workloads: the one that did so last, or any once that one is overdue.
-- KEYS: sampler. ARGV: owner, milliseconds. Returns 1 if it is the owner's turn.
local sampler = redis.call('GET', KEYS[1])
if sampler and sampler ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
