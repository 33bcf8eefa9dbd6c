-- A timeline with the run that has its head. KEYS: run, timeline. Returns the run JSON, or '', and the entries.
return {redis.call('GET', KEYS[1]) or '', redis.call('LRANGE', KEYS[2], 0, -1)}
