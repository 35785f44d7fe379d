"""Task side: `UpsertWriter` writes rows as they come, `StageWriter` puts them into a stage.

The next block is encoded while one is on its way. Failpoints: `rows-written`: an upsert's rows are
all there, nobody told yet; `stage-written`: the stage is whole, nobody told yet.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from seamark.contracts.attempt_name import AttemptName, random_token
from seamark.contracts.dead_letters import RefusedRow, without
from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.sinks.internal import changes
from seamark.sinks.redis import scripts, server
from seamark.sinks.redis.committable import Keys, RedisCommittable
from seamark.sinks.redis.rows import Block, Layout, blocks, key_names, unfit
from seamark.sinks.redis.server import Address, Link


@dataclass(eq=False)
class RedisWriter:
    """One attempt's writer. Connects when its first row comes. The subclass decides where blocks
    go."""

    _address: Address
    _layout: Layout
    _replicas: int
    _name: str
    _context: WriterContext
    mset = False

    def __post_init__(self) -> None:
        self._keys = Keys(self._context.job_id, self._context.sink_uid)
        self._link: Link | None = None
        self._server: list[bytes] | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CommittingWriter`."""
        if batch.num_rows == 0:
            return
        with self._errors():
            for block in blocks(batch, self._layout, mset=self.mset):
                self._put(block)
        self._rows += batch.num_rows

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`. Refuses a null key, a value too long and, when hashes are written,
        a key with a value of another type."""
        refused = unfit(batch, self._layout)
        if self._layout.value is None:
            refused = changes.take_others(batch, refused, self._other_kinds)
        self.write(without(batch, refused))
        return refused

    def _other_kinds(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        refused = []
        with self._errors():
            keys = key_names(batch, self._layout)
            for start in range(0, len(keys), scripts.BLOCK_ARGUMENTS):
                some = keys[start : start + scripts.BLOCK_ARGUMENTS]
                self._ready()  # answers come in the order of the questions
                answer = self._connected.call("EVAL", scripts.OTHERS_THAN_HASHES, 0, *some)
                for number, kind in zip(answer[::2], answer[1::2], strict=True):
                    reason = f"its key holds a {kind.decode()}, not a hash"
                    refused.append(RefusedRow(start + number - 1, reason))
        return refused

    def prepare_commit(self) -> Sequence[RedisCommittable]:
        """See `CommittingWriter`."""
        if self._rows == 0:
            self._close()
            return []
        with self._errors():
            made = self._finish()
            server.wait_for_replicas(self._connected, self._keys, self._replicas)
        self._close()
        return made

    def abort(self) -> None:
        """See `CommittingWriter`."""
        self._close()

    def _put(self, block: Block) -> None:
        raise NotImplementedError

    def _finish(self) -> Sequence[RedisCommittable]:
        raise NotImplementedError

    def _settle(self) -> None:
        raise NotImplementedError

    def _ready(self) -> None:
        """Await every answer. Make a cut connection anew: a server or proxy may cut one that waits
        for rows. A server that has come up meanwhile may lack rows that it has confirmed."""
        self._settle()
        if self._link is not None and not self._link.may_be_cut():
            return
        self._close()
        self._link = None
        told = self._connected.call("INFO", "server").splitlines()
        server = [line for line in told if line.startswith(b"run_id:")]
        if self._server not in (None, server):
            self._close()
            raise PreCommitError(
                f"{self._name}: the server is another one than before, or has come up again"
            )
        self._server = server

    @property
    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._address, 6 * self._address.timeout_s)
        return self._link

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except server.driver().RedisError as error:
            self._close()
            if server.refuses(error):
                raise WriteRefusedError(
                    f"{self._name}: a key holds something that is no "
                    f"{'hash' if self._layout.value is None else 'string'}: {error}. Delete it, or "
                    "give the sink a key_prefix of its own"
                ) from error
            raise PreCommitError(f"{self._name}: {error}") from error


class UpsertWriter(RedisWriter):
    """Sends every block through the guard (`scripts.py`); its rows are visible at once.

    MSET applies the blocks it can: twice as fast as a script. WATCH then ties it to the guard: if
    the guard has changed since it let the block pass, EXEC does nothing.
    """

    mset = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._guard = self._keys.named("guard")
        at = self._context
        self._who = (at.generation, at.epoch, at.partition_id, at.attempt)
        self._on_its_way: Block | None = None
        self._entered = False
        self._finished = False

    def abort(self) -> None:
        """See `CommittingWriter`. Written rows stay until the retry, or the epoch's replay, has
        written them again. After `prepare_commit`, let a retry of the task write."""
        with ignored("the abort of a writer"):
            if self._finished:
                link = Link(self._address, server.CONNECT_TIMEOUT_S)
                with contextlib.closing(link):
                    link.call("EVAL", scripts.RELEASE, 1, self._guard, *self._who)
        super().abort()

    def _put(self, block: Block) -> None:
        self._ready()
        self._send(block)
        self._on_its_way = block

    def _finish(self) -> Sequence[RedisCommittable]:
        self._ready()
        self._finished = True  # even if no answer comes
        self._ask(scripts.FINISH)
        failpoints.reached("rows-written")
        return []

    def _send(self, block: Block) -> None:
        link = self._connected
        if not block.mset:
            script = (b"EVAL", scripts.ENTER_AND_APPLY.encode(), b"1", self._guard.encode())
            packed = block.packed()
            size = sum(map(len, packed))
            who = [b"%d" % number for number in self._who]
            head = _head(9, *script, *who) + b"$%d\r\n" % size
            link.send([head, *packed, b"\r\n"])
            return
        if not self._entered:  # changes the guard, so it precedes WATCH
            self._ask(scripts.ENTER)
            self._entered = True
        link.call("WATCH", self._guard)
        self._ask(scripts.ENTER)
        head = _head(1, b"MULTI") + _head(1 + block.arguments, b"MSET")
        link.send([head, block.body, _head(1, b"EXEC")])

    def _settle(self) -> None:
        """Read the answer to the block on its way. Send the block again if the guard has changed
        meanwhile, for example by another task's first block."""
        block, self._on_its_way = self._on_its_way, None
        while block is not None:
            if not block.mset:
                self._require(self._connected.answer())
                return
            queued = [self._connected.answer() for _ in ("MULTI", "MSET", "EXEC")]
            if queued[-1] is not None:
                return
            self._send(block)

    def _ask(self, script: str) -> None:
        self._require(self._connected.call("EVAL", script, 1, self._guard, *self._who))

    def _require(self, entered: bytes) -> None:
        if entered != b"ok":
            self._close()
            at = self._context
            raise PreCommitError(
                f"{self._name}: epoch {at.epoch}, generation {at.generation}, attempt {at.attempt} "
                f"at partition {at.partition_id} may not write: {entered.decode()}. It is a late "
                "one, and its rows would go over newer ones"
            )


class StageWriter(RedisWriter):
    """Appends blocks to a list read only by the committer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stage = str(AttemptName.of(self._context, token=random_token(16)))
        self._blocks = 0
        self._awaited = 0

    def _put(self, block: Block) -> None:
        self._ready()
        stage = self._keys.stage(self._stage).encode()
        packed = block.packed()
        # RPUSHX, from the second block on, needs the list: an aborted stage stays aborted.
        push = _head(3, b"RPUSHX" if self._blocks else b"RPUSH", stage)
        push += b"$%d\r\n" % sum(map(len, packed))
        before, after = b"", b"\r\n"
        if not self._blocks:
            entry = (self._keys.named("stages").encode(), self._stage.encode(), b"open")
            before = _head(1, b"MULTI") + _head(4, b"HSET", *entry)
            after += _head(1, b"EXEC")
        self._connected.send([before, push, *packed, after])
        self._awaited = 1 if self._blocks else 4
        self._blocks += 1

    def _finish(self) -> Sequence[RedisCommittable]:
        self._ready()
        # After the last answer the server may have died, or the stage been aborted.
        self._require_whole(self._connected.call("LLEN", self._keys.stage(self._stage)))
        failpoints.reached("stage-written")
        return [RedisCommittable.of(self._context, self._stage, self._rows, blocks=self._blocks)]

    def _settle(self) -> None:
        if not self._awaited:
            return
        answers = [self._connected.answer() for _ in range(self._awaited)]
        length = answers[-1][-1] if self._awaited == 4 else answers[-1]
        self._awaited = 0
        self._require_whole(length)

    def _require_whole(self, length: int) -> None:
        if length != self._blocks:
            self._close()
            raise PreCommitError(
                f"{self._name}: stage {self._stage} holds {length} blocks and not "
                f"{self._blocks}: it was aborted, or somebody changed it"
            )


def _head(count: int, *arguments: bytes) -> bytes:
    """Return the beginning of a command of `count` arguments."""
    return b"*%d\r\n" % count + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in arguments)
