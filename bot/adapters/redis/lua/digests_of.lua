-- Returns every digest that these runs mention. KEYS: runs.
local found, seen = {}, {}
for _, key in ipairs(KEYS) do
  for digest in string.gmatch(redis.call('GET', key) or '', '"digest":"(%x+)"') do
    if not seen[digest] then
      seen[digest] = true
      table.insert(found, digest)
    end
  end
end
return found
