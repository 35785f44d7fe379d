local stages, stage, committed, handle = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local left = redis.call('HGET', stages, handle)
if left and left ~= 'open' or redis.call('ZSCORE', committed, handle) then return 'committed' end
redis.call('UNLINK', stage)
redis.call('HDEL', stages, handle)
return 'aborted'
