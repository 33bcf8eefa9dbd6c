-- The storage's time as text, seconds with micros.
local now = TIME()
return STAMP(now)
