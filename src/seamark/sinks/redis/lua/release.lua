if redis.call('HGET', KEYS[1], 'generation') == ARGV[1]
  and redis.call('HGET', KEYS[1], 'epoch') == ARGV[2]
  and redis.call('HGET', KEYS[1], 'p' .. ARGV[3]) == 'done ' .. ARGV[4]
then redis.call('HSET', KEYS[1], 'p' .. ARGV[3], ARGV[4]) end
