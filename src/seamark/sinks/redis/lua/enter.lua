local function enter()
  local guard, partition = KEYS[1], 'p' .. ARGV[3]
  local generation, epoch = tonumber(ARGV[1]), tonumber(ARGV[2])
  local held = redis.call('HMGET', guard, 'generation', 'epoch', partition)
  local newest, last = tonumber(held[1] or -1), tonumber(held[2] or -1)
  if newest > generation or (newest == generation and last > epoch) then
    return 'superseded by generation ' .. newest .. ', epoch ' .. last
  end
  if newest < generation or last < epoch then
    redis.call('DEL', guard)
    redis.call('HSET', guard, 'generation', ARGV[1], 'epoch', ARGV[2], partition, ARGV[4])
  elseif held[3] ~= ARGV[4] then
    local other = tonumber(held[3] or -1)
    if not other then return 'written already: ' .. held[3] end
    if other > tonumber(ARGV[4]) then return 'superseded by attempt ' .. other end
    redis.call('HSET', guard, partition, ARGV[4])
  end
  return 'ok'
end
local entered = enter()
