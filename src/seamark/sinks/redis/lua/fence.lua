if tonumber(redis.call('HGET', KEYS[1], 'generation') or -1) < tonumber(ARGV[1]) then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'epoch', -1)
end
-- Without a ttl, applied blocks need this right too: meet its lack at the start.
redis.call('PERSIST', KEYS[1])
