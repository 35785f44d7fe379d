local function call(command, key, block, first, last)
  for i = first, last, BLOCK_ARGUMENTS do
    redis.call(command, key, unpack(block, i, math.min(i + BLOCK_ARGUMENTS - 1, last)))
  end
end
local function apply(block)
  local operation, ttl, last = block[1], block[2], #block
  if operation == 'hash' then
    local i = 3
    while i <= last do
      local key, set = block[i], i + 1 + tonumber(block[i + 1])
      call('HSET', key, block, i + 2, set)
      local fields = tonumber(block[set + 1])
      if fields < 0 then
        redis.call('UNLINK', key)
        fields = 0
      end
      local gone = set + 1 + fields
      call('HDEL', key, block, set + 2, gone)
      if ttl ~= '' then redis.call('PEXPIRE', key, ttl) else redis.call('PERSIST', key) end
      i = gone + 1
    end
  elseif operation == 'set' and ttl ~= '' then
    for i = 3, last, 2 do redis.call('SET', block[i], block[i + 1], 'PX', ttl) end
  else
    local command = operation == 'set' and 'MSET' or 'UNLINK'
    for i = 3, last, BLOCK_ARGUMENTS do
      redis.call(command, unpack(block, i, math.min(i + BLOCK_ARGUMENTS - 1, last)))
    end
  end
end
