local found = {}
for i = 1, #ARGV do
  local kind = redis.call('TYPE', ARGV[i]).ok
  if kind ~= 'none' and kind ~= 'hash' then found[#found + 1] = i; found[#found + 1] = kind end
end
return found
