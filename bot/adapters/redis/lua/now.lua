-- The storage's time as text, seconds with micros.
local now = TIME()
return now[1] .. '.' .. string.format('%06d', now[2])
