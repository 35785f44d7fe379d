local stages, stage, committed, handle = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local left = redis.call('HGET', stages, handle)
if not left then
  if redis.call('ZSCORE', committed, handle) then return 'already' end
  local newest = redis.call('ZREVRANGE', committed, 0, 0, 'WITHSCORES')[2]
  if newest and tonumber(ARGV[2]) < tonumber(newest) - LEDGER_EPOCHS then return 'forgotten' end
  return 'lost'
end
left = left == 'open' and tonumber(ARGV[3]) or tonumber(left)
if redis.call('LLEN', stage) ~= left then
  redis.call('UNLINK', stage)
  redis.call('HDEL', stages, handle)
  return 'lost'
end
redis.call('HSET', stages, handle, left)
apply(cmsgpack.unpack(redis.call('LINDEX', stage, 0)))
redis.call('LPOP', stage)
left = left - 1
redis.call('HSET', stages, handle, left)
if left > 0 then return 'more' end
redis.call('HDEL', stages, handle)
redis.call('ZADD', committed, ARGV[2], handle)
redis.call('ZREMRANGEBYSCORE', committed, '-inf', '(' .. tonumber(ARGV[2]) - LEDGER_EPOCHS)
return 'committed'
