"""Lua scripts, each run by the server in one piece, and the guard they share.

**The guard** of an upserting sink is a hash: ``generation`` and ``epoch`` of the newest write, and
for each partition of that epoch its writing attempt, or ``done <attempt>``. A block is applied if
and only if its writer is the newest in all three, and its partition is not done. A late writer (a
paused driver's worker, a lost executor's task, a block stuck in a socket) changes nothing. So a key
keeps the value of the newest epoch's winning attempt.

- An older generation or epoch, or an attempt below the partition's, is refused for ever.
- After ``done`` even a newer attempt is refused: if it were killed in the middle of its rows, older
  rows of the epoch would stay on top. `RELEASE` takes ``done`` back when the task fails after all,
  so its retry may write.

**A stage** is a list of blocks with an entry in ``stages``: ``open``, or the number of blocks still
to be applied. One script both applies a block and takes it off the list. So each block is applied
once and in order, whoever continues a commit, and however often.

Every call sends its script as text: beside a block this costs nothing, and no server can have lost
the script.
"""

from __future__ import annotations

from seamark.sinks.internal.outcomes import LEDGER_EPOCHS

BLOCK_ARGUMENTS = 4000
"""Lua can pass on fewer than 8,000 arguments at once."""

_ENTER = """
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
"""

_APPLY = f"""
local function apply(block)
  local operation, ttl, last = block[1], block[2], #block
  if operation == 'hash' then
    local i = 3
    while i <= last do
      local key, set = block[i], i + 1 + tonumber(block[i + 1])
      if set > i + 1 then redis.call('HSET', key, unpack(block, i + 2, set)) end
      local gone = set + 1 + tonumber(block[set + 1])
      if gone > set + 1 then redis.call('HDEL', key, unpack(block, set + 2, gone)) end
      if ttl ~= '' then redis.call('PEXPIRE', key, ttl) end
      i = gone + 1
    end
  elseif operation == 'set' and ttl ~= '' then
    for i = 3, last, 2 do redis.call('SET', block[i], block[i + 1], 'PX', ttl) end
  else
    local command = operation == 'set' and 'MSET' or 'UNLINK'
    for i = 3, last, {BLOCK_ARGUMENTS} do
      redis.call(command, unpack(block, i, math.min(i + {BLOCK_ARGUMENTS - 1}, last)))
    end
  end
end
"""

ENTER = f"{_ENTER} return entered"
"""Ask whether this attempt may write. KEYS: guard; ARGV: generation, epoch, partition, attempt.
Answers ``ok`` or the reason against it."""

ENTER_AND_APPLY = f"""
{_ENTER}{_APPLY}
if entered == 'ok' then apply(cmsgpack.unpack(ARGV[5])) end
return entered
"""
"""Ask the same, and apply a block, the fifth argument."""

FINISH = f"""
{_ENTER}
if entered == 'ok' then redis.call('HSET', KEYS[1], 'p' .. ARGV[3], 'done ' .. ARGV[4]) end
return entered
"""
"""Record that this attempt has written all of its rows."""

RELEASE = """
if redis.call('HGET', KEYS[1], 'generation') == ARGV[1]
  and redis.call('HGET', KEYS[1], 'epoch') == ARGV[2]
  and redis.call('HGET', KEYS[1], 'p' .. ARGV[3]) == 'done ' .. ARGV[4]
then redis.call('HSET', KEYS[1], 'p' .. ARGV[3], ARGV[4]) end
"""
"""Let another attempt write: this one, though done, has failed."""

FENCE = """
if tonumber(redis.call('HGET', KEYS[1], 'generation') or -1) < tonumber(ARGV[1]) then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'epoch', -1)
end
"""
"""Stop all writes of older generations when a driver starts. KEYS: guard; ARGV: generation."""

COMMIT = f"""
{_APPLY}
local stages, stage, committed, handle = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local left = redis.call('HGET', stages, handle)
if not left then
  if redis.call('ZSCORE', committed, handle) then return 'already' end
  local newest = redis.call('ZREVRANGE', committed, 0, 0, 'WITHSCORES')[2]
  if newest and tonumber(ARGV[2]) < tonumber(newest) - {LEDGER_EPOCHS} then return 'forgotten' end
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
redis.call('ZREMRANGEBYSCORE', committed, '-inf', '(' .. tonumber(ARGV[2]) - {LEDGER_EPOCHS})
return 'committed'
"""
"""Apply a stage's next block. KEYS: stages, stage, committed; ARGV: handle, epoch, blocks."""

ABORT = """
local stages, stage, committed, handle = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local left = redis.call('HGET', stages, handle)
if left and left ~= 'open' or redis.call('ZSCORE', committed, handle) then return 'committed' end
redis.call('UNLINK', stage)
redis.call('HDEL', stages, handle)
return 'aborted'
"""
"""Drop a stage unless its commit has begun. KEYS and first ARGV as for `COMMIT`."""

OTHERS_THAN_HASHES = """
local found = {}
for i = 1, #ARGV do
  local kind = redis.call('TYPE', ARGV[i]).ok
  if kind ~= 'none' and kind ~= 'hash' then found[#found + 1] = i; found[#found + 1] = kind end
end
return found
"""
"""Find the keys (by number, from 1) refused by HSET, each followed by its value's type."""
