"""The parts of the suite's tests: contexts, writes, commits, and children to be killed.

Drivers differ by their generation alone, as in a real job. A process that must die is a child
(`../child.py`): it gets the pickled sink and ends with SIGKILL.
"""

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from seamark.contracts.sink import (
    CommitOutcome,
    Committer,
    Lingering,
    SinkContext,
    TwoPhaseCommitSink,
    WriterContext,
)
from seamark.contracts.spool import spool_directory
from seamark.files.location import encoded
from seamark.model import failpoints
from seamark.model.errors import PreflightError, SeamarkError
from seamark.model.findings import FindingCode
from seamark.verify.proxy import CuttingProxy, Side

_shared = tempfile.TemporaryDirectory(prefix="sm-conformance-")
checkpoints = Path(_shared.name)
"""The directory of the jobs' checkpoints; each test gets its own from `suite.py`."""
JOB, UID = "c0ffee00c0ffee00", "orders-out"
DONE = {CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED}
CHILD_DEADLINE_S = 60
PROOF_DEADLINE_S = 60
MOST_CUTS = 1000


@dataclass(frozen=True)
class ServerUnderTest:
    """The server behind a sink, if each test has a server of its own.

    kill: end it with SIGKILL. restart: start it again on its old data; return when it answers.
    """

    kill: Callable[[], None]
    restart: Callable[[], None]

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Kill the server, for the time of the context."""
        self.kill()
        try:
            yield
        finally:
            self.restart()


@dataclass(frozen=True)
class LineUnderTest:
    """The line to a sink's server: one TCP connection, or several to one address.

    host, port: the server's address. through: makes the same sink with its server at 127.0.0.1 and
    the given port, a proxy's.
    """

    host: str
    port: int
    through: Callable[[int], TwoPhaseCommitSink[Any]]


@dataclass(frozen=True)
class SinkUnderTest:
    """One configured sink on a fresh target, with everything that only its test knows.

    batch: makes a batch of one row per number, with the columns given to the sink's writers.
    visible: every number seen by a reader of the target now, duplicates included.
    writer_failpoint: the failpoint (`seamark.model.failpoints`) at the end of `prepare_commit`;
        without one the writer's process is killed right after it.
    commit_failpoints: every ``name[:nth]`` passed by a commit of three transactions; without one
        the committer's process is killed after the commit, before it has told anybody.
    gone: the outcome of committing an aborted or dropped transaction: UNKNOWN for a system without
        a record of how one ended.
    drop: for `ExpiryConformance`: makes the system drop a prepared transaction, as a time-out does.
    forget: for `ForgettingConformance`: makes the system forget, as time does, how a committed
        transaction ended; its rows stay. Without it the test commits a much later epoch.
    refused: for `RefusalConformance`: makes a batch that the target refuses once it holds a
        committed row. For `DeadLetterConformance` it has the columns of `batch`, and the target
        refuses each of its rows for its own sake.
    server: for `ServerConformance`: kills and restarts the server.
    line: for `LineConformance` and `OutageConformance`: leads the sink through a proxy.
    outages: for `OutageConformance`: makes contexts, by name, in which no commit can go through: a
        full disk, a read-only or paused server, a directory not mounted.
    """

    sink: TwoPhaseCommitSink[Any]
    batch: Callable[[Sequence[int]], pa.RecordBatch]
    visible: Callable[[], list[int]]
    writer_failpoint: str = ""
    commit_failpoints: tuple[str, ...] = ()
    gone: CommitOutcome = CommitOutcome.LOST
    drop: Callable[[Any], None] | None = None
    forget: Callable[[Any], None] | None = None
    refused: Callable[[], pa.RecordBatch] | None = None
    server: ServerUnderTest | None = None
    line: LineUnderTest | None = None
    outages: Mapping[str, Callable[[], AbstractContextManager[object]]] = field(
        default_factory=dict
    )


class HasSink(Protocol):
    """Any object that holds a sink under test."""

    @property
    def sink(self) -> TwoPhaseCommitSink[Any]:
        """The sink."""


def driver(generation: int = 1, *, job: str = JOB, uid: str = UID) -> SinkContext:
    """Return the context of a committer of this generation."""
    return SinkContext(
        job, "orders", uid, generation, checkpoint_interval_s=5.0, spool_uri=spool_uri(job, uid)
    )


def attempt(
    generation: int = 1, epoch: int = 0, partition: int = 0, attempt: int = 0, *,
    job: str = JOB, uid: str = UID,
) -> WriterContext:  # fmt: skip
    """Return the context of one attempt's writer."""
    return WriterContext(
        job, uid, generation, epoch, partition, attempt, settled_epoch=epoch - 1,
        spool_uri=spool_uri(job, uid),
    )  # fmt: skip


def spool_uri(job: str = JOB, uid: str = UID) -> str:
    """Return the spool given by a job to a sink; the job's own directory exists, as in a real
    job."""
    directory = checkpoints / job
    directory.mkdir(parents=True, exist_ok=True)
    return encoded(f"file://{directory}/{spool_directory(uid)}")


def write(
    under: SinkUnderTest, context: WriterContext, numbers: Sequence[int]
) -> tuple[Any, list[Any]]:
    """Write the numbers as two batches and flush; return the writer and its committables."""
    writer = under.sink.create_writer(context)
    middle = len(numbers) // 2
    writer.write(under.batch(numbers[:middle]))
    writer.write(under.batch(numbers[middle:]))
    return writer, list(writer.prepare_commit())


def three(
    under: SinkUnderTest, numbers: Sequence[int] = range(30), generation: int = 1, epoch: int = 0
) -> list[Any]:
    """Write a third of the numbers in each of three transactions; return their committables."""
    third = -(-len(numbers) // 3)
    return [
        committable
        for p in range(3)
        for committable in write(
            under, attempt(generation, epoch, p), numbers[third * p : third * (p + 1)]
        )[1]
    ]


def committer(under: HasSink, context: SinkContext) -> Committer[Any]:
    """Return a committer after its preflight. One without an answer is repeated: a system that has
    just come back, on a loaded machine, may be slower than a short time-out of the sink's."""
    made = under.sink.create_committer(context)
    for tries_left in reversed(range(10)):
        try:
            made.preflight()
            break
        except PreflightError as error:
            unanswered = error.finding is not None and error.finding.code is FindingCode.SV001
            if not unanswered or not tries_left:
                raise
    return made


def answered(
    call: Callable[[Sequence[Any]], Sequence[Any]], items: Sequence[Any], retry: Any
) -> list[Any]:
    """Return the outcomes of one call as the coordinator takes them: an exception that is none of
    Seamark's is RETRY for all."""
    try:
        return list(call(items))
    except SeamarkError:
        raise
    except Exception as error:
        logging.getLogger(__name__).warning("asked again after %r", error)
        return [retry] * len(items)


def until_proved(call: Callable[[Sequence[Any]], Sequence[Any]], items: Sequence[Any]) -> list[Any]:
    """Call until no outcome is RETRY, as the coordinator does, and return the outcomes."""
    deadline = time.monotonic() + PROOF_DEADLINE_S
    for tries in range(1_000_000):
        outcomes = answered(call, items, CommitOutcome.RETRY)
        if len(outcomes) != len(items):
            raise AssertionError(f"{len(outcomes)} outcomes for {len(items)} committables")
        if not any(outcome.name == "RETRY" for outcome in outcomes):
            return outcomes
        if time.monotonic() > deadline:
            break
        time.sleep(min(0.001 * tries, 0.2))
    raise AssertionError(f"still RETRY after {PROOF_DEADLINE_S} s: {outcomes}")


def lingering(side: Committer[Any]) -> list[Lingering[Any]]:
    """List until it is answered, as the coordinator does: a line may have been cut before."""
    deadline = time.monotonic() + PROOF_DEADLINE_S
    while True:
        try:
            return list(side.list_lingering())
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def cut_lines(under: SinkUnderTest, side: Side) -> Iterator[tuple[int, TwoPhaseCommitSink[Any]]]:
    """Yield 0, 1, … and the sink through a proxy that cuts the line at the first, second, … request
    or reply. End after the first round without a cut."""
    assert under.line is not None, "give SinkUnderTest.line"
    with CuttingProxy(under.line.host, under.line.port) as proxy:
        sink = under.line.through(proxy.port)
        for number in range(MOST_CUTS):
            proxy.cut_at(side, number + 1)
            yield number, sink
            if proxy.cuts == number:
                assert number > 0, "nothing of the sink's goes through the proxy"
                return
    raise AssertionError(f"more than {MOST_CUTS} {side}s")


def in_child(
    sink: TwoPhaseCommitSink[Any],
    action: str,
    context: WriterContext | SinkContext,
    data: Any,
    *,
    die: bool = False,
    failpoint: str = "",
) -> tuple[int, Any]:
    """Run `../child.py` on the pickled sink; return its exit status and the objects it wrote.
    `die`: it kills itself after it has done and reported its work. At `failpoint` it dies
    earlier."""
    done = subprocess.run(
        [sys.executable, "-m", "seamark.verify.child", action],
        input=pickle.dumps((sink, die, context, data)),
        capture_output=True,
        # The child must find the sink's own module, as this process does.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), failpoints.VARIABLE: failpoint},
        timeout=CHILD_DEADLINE_S,
        check=False,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"the child that should {action} failed:\n{done.stderr.decode()}")
    return done.returncode, pickle.loads(done.stdout) if done.stdout else None


def ipc(batch: pa.RecordBatch) -> bytes:
    """Return one batch as an Arrow stream, for a child process."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(out.getvalue().to_pybytes())
