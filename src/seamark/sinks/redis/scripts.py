"""Lua scripts (`lua/`), each run by the server in one piece, and the guard they share.

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

Every call sends its script as text: beside a block this costs nothing, and it cannot be lost.
"""

from importlib.resources import files

from seamark.sinks.internal.outcomes import LEDGER_EPOCHS

BLOCK_ARGUMENTS = 4000
"""Lua can pass on fewer than 8,000 arguments at once. Even: a field goes with its value."""
_CONSTANTS = f"local BLOCK_ARGUMENTS, LEDGER_EPOCHS = {BLOCK_ARGUMENTS}, {LEDGER_EPOCHS}\n"


def _script(*names: str) -> str:
    """Return these files of `lua/` as one script."""
    directory = files(__package__).joinpath("lua")
    return _CONSTANTS + "".join(directory.joinpath(f"{name}.lua").read_text() for name in names)


ENTER = _script("enter") + "return entered"
"""Ask whether this attempt may write. KEYS: guard; ARGV: generation, epoch, partition, attempt.
Answers ``ok`` or the reason against it."""
ENTER_AND_APPLY = _script("enter", "apply", "enter_and_apply")
"""Ask the same, and apply a block, the fifth argument."""
FINISH = _script("enter", "finish")
"""Record that this attempt has written all of its rows."""
RELEASE = _script("release")
"""Let another attempt write: this one, though done, has failed."""
FENCE = _script("fence")
"""Stop all writes of older generations when a driver starts. KEYS: guard; ARGV: generation."""
COMMIT = _script("apply", "commit")
"""Apply a stage's next block. KEYS: stages, stage, committed; ARGV: handle, epoch, blocks."""
ABORT = _script("abort")
"""Drop a stage unless its commit has begun. KEYS and first ARGV as for `COMMIT`."""
OTHERS_THAN_HASHES = _script("others_than_hashes")
"""Find the keys (by number, from 1) refused by HSET, each followed by its value's type."""
