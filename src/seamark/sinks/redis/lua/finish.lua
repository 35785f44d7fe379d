if entered == 'ok' then redis.call('HSET', KEYS[1], 'p' .. ARGV[3], 'done ' .. ARGV[4]) end
return entered
