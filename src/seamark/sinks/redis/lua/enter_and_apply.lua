if entered == 'ok' then apply(cmsgpack.unpack(ARGV[5])) end
return entered
