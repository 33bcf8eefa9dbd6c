-- The number of the next incident; nothing if the epoch is over. KEYS: epoch, counter. ARGV: as NEXT_NUMBER.
return NEXT_NUMBER(KEYS[1], KEYS[2], ARGV[1])
