"""One driver's life: its Spark query, its commit thread, its sweeper and its end.

The protocol's steps are those of `seamark.protocol.procedures`, run by `replay.stepwise`; the
coordinator's work around them (waits, and the end) is told here once more in small. Threads are
generators: they yield before each externally visible step: `None` when they can go on, a predicate
when they wait. Python, JVM and tasks die and sleep together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from seamark.model.errors import (
    CommitFailedError,
    FencedError,
    LossRefusedError,
    LostTransactionError,
    SeamarkError,
)
from seamark.protocol import procedures
from seamark.protocol.accept_loss import Acceptance, accept_loss
from seamark.protocol.points import Point
from seamark.protocol.verdicts import DriverState, Verdict, of_stored, of_unstored
from seamark.protocol.write_again import close_chain, write_again

from .replay import Call, stepwise
from .world import SparkFailedError, Transaction, UnprovedError, World

WRITES = {
    "claim_generation", "end_lineage", "claim_epoch", "forget_generations", "seal",
    "write_prepared", "write_committed", "accept_loss", "void_decision", "void_offsets",
    "put_back_plan", "put_back_decision",
}  # fmt: skip
Wait = Callable[[], bool] | None
Steps = Generator[Wait, None, Any]


@dataclass(frozen=True)
class Protocol:
    """The parts of the protocol replaceable by `planted_bugs.py`; the defaults are the real ones.

    `reusable(last_used, settled)`: may an id last used in epoch `last_used` be used again;
    `is_decided(world, epoch)`: the decision, as the commit thread sees it; `settle_own` also gets
    the driver's stored and uncommitted epochs; `seen_before(world, uid, epoch)`: whether a task
    leaves out an epoch as written already; `execute`: replaces the execution of a port call, if it
    returns not None; `aborts(generation, own)`: whether generation `own` of `seamark txn abort`
    takes the driver of `generation` for gone; `believes_unproved`: whether rows are written again
    without a proof of their loss.
    """

    take_over: Callable[..., Any] = procedures.take_over
    supersede: Callable[..., Any] = procedures.supersede
    recover: Callable[..., Any] = procedures.recover
    claim_epoch: Callable[..., bool] = procedures.claim_epoch
    store_attempt: Callable[..., Any] = procedures.store_attempt
    commit_attempt: Callable[..., Any] = procedures.commit_attempt
    settle_own: Callable[..., Any] = lambda own, known, r, s: procedures.settle_own(own, r, s)
    check_continuity: Callable[[int, int], None] = procedures.check_continuity
    reusable: Callable[[int, int], bool] = lambda last_used, settled: last_used <= settled
    is_decided: Callable[[World, int], bool] = lambda world, epoch: epoch in world.commits
    seen_before: Callable[[World, str, int], bool] = lambda world, uid, epoch: False
    execute: Callable[[World, Call], Any] = lambda world, call: None
    write_again: Callable[[Any], Any] = write_again
    close_chain: Callable[[Any], Any] = close_chain
    accept_loss: Callable[..., Any] = accept_loss
    fence: Callable[..., Any] = procedures.fence
    aborts: Callable[[int, int], bool] = lambda generation, own: generation < own
    believes_unproved: bool = False

    def take_id(self, ids: dict[str, int], owner: str, uid: str, epoch: int, settled: int) -> str:
        """Return the id of a sink's next transaction, used again where `reusable` allows it, and
        note the epoch in `ids`; `owner` begins a new id."""
        for id_, last_used in ids.items():
            if id_.startswith(uid) and last_used < epoch and self.reusable(last_used, settled):
                break
        else:
            id_ = f"{owner}-{len(ids)}"
        ids[id_] = epoch
        return id_


@dataclass(eq=False)
class Thread:
    """One thread of a driver; `at` holds the points it has passed since its last step."""

    name: str
    steps: Steps
    waiting: Wait = None
    done: bool = False
    at: set[Point] = field(default_factory=set)

    def ready(self) -> bool:
        return not self.done and (self.waiting is None or self.waiting())


class Driver:
    """See the module's docstring. `reply` and `fail_task` are faults, armed by the scheduler."""

    def __init__(self, name: str, world: World, protocol: Protocol) -> None:
        self.name = name
        self.world = world
        self.protocol = protocol
        self.generation = 0
        self.last_stored = self.last_committed = -1
        self.uncommitted: list[int] = []
        self.staged: dict[int, dict[str, list[Transaction]]] = {}
        self.ids: dict[str, int] = {}
        self.entered = -1
        self.storing = False
        self.ended = False
        self.failure: Exception | None = None
        self.stopped_by: Exception | None = None
        self.finished = False
        self.paused = False
        self.calls: list[str] = []
        self.reply: str | None = None
        self.fail_task = False
        self.stream = Thread("stream", self._stream())
        self.committer: Thread | None = None
        self.threads = [self.stream]

    @property
    def alive(self) -> bool:
        return not self.finished

    def step(self, thread: Thread) -> None:
        """Let one thread take one step; an error ends the driver as it does in production."""
        thread.at.clear()
        self._now = thread
        self.world.caller = self
        try:
            thread.waiting = next(thread.steps)
        except StopIteration:
            thread.done = True
        except (SeamarkError, SparkFailedError) as error:
            thread.done = True
            self.world.check_stop(self, error)
            self.stopped_by = self.stopped_by or error
            if thread is not self.stream:
                self.failure = error
            self.stop()

    def crash(self) -> set[Point]:
        """kill -9 of everything; return the points it died at."""
        self.finished = True
        return {point for thread in self.threads for point in thread.at}

    def stop(self) -> None:
        """Begin the end: asked for, or because a thread has failed."""
        if not any(t.name == "finish" for t in self.threads):
            self.threads.append(Thread("finish", self._finish()))

    def sweep(self) -> None:
        """Let the periodic look for lingering transactions begin."""
        if self.committer is not None and not any(t.name == "sweep" for t in self.threads):
            self.threads.append(Thread("sweep", self._sweep()))

    def _run(self, procedure: Callable[[Any, Any], Any]) -> Steps:
        return stepwise(procedure, self.world.uids, self._execute, self._passed)

    def _passed(self, point: Point) -> None:
        self._now.at.add(point)

    # --- the calls, with lost replies

    def _execute(self, call: Call) -> Steps:
        reply, self.reply = self.reply, None
        self.calls.append(call.name)
        replaced = self.protocol.execute(self.world, call)
        if replaced is not None:
            answer = replaced() if callable(replaced) else replaced
        elif call.name in ("commit", "abort", "abort_lingering", "close_rewrites"):
            answer = None
            yield from self._execute_at_sink(call)
            if reply == "repeat":
                yield
                yield from self._execute_at_sink(call)
        elif reply == "late" and call.name in WRITES:
            self.world.late.append((self, call))
            raise CommitFailedError(f"{call} was given up, and will still arrive")
        else:
            answer = getattr(self.world, call.name)(*call.args)
        if reply == "lost":
            raise CommitFailedError(f"{call} was done, but its reply never came")
        return answer

    def _execute_at_sink(self, call: Call) -> Steps:
        uid, *rest = call.args
        if call.name == "close_rewrites":
            epoch, generation, lost = rest
            for transaction in self.world.committables(uid, epoch, generation):
                if self.world.setup.spool and transaction.id in lost.transactions:
                    yield from self._run_chain(uid, transaction, self.protocol.close_chain)
            return
        sink = self.world.sinks[uid]
        if call.name == "abort_lingering":
            below, keep = rest[0], rest[1] if len(rest) > 1 else ()
            targets = [t for t in sink.open() if t.generation < below and t not in keep]
            act = self.world.abort
        else:
            targets = self.world.committables(uid, *rest)
            act = self.world.commit if call.name == "commit" else self.world.abort
        gone: list[str] = []
        for i, transaction in enumerate(targets):
            if i:
                yield
            self.world.caller = self
            try:
                try:
                    act(uid, transaction)
                except (LostTransactionError, UnprovedError) as error:
                    lost = isinstance(error, LostTransactionError)
                    proved = lost or self.protocol.believes_unproved
                    if not (self.world.setup.spool and proved and call.name == "commit"):
                        raise
                    yield
                    yield from self._run_chain(uid, transaction, self.protocol.write_again)
            except LostTransactionError as error:  # the others are committed all the same
                gone += error.transactions
        if gone:
            raise LostTransactionError(f"{uid}: {gone} of epoch {rest[0]} are gone", gone)

    def _run_chain(self, uid: str, lost: Transaction, steps: Callable[[Any], Any]) -> Steps:
        """Run the protocol's steps against the world's chain of this lost transaction."""
        world = self.world
        own: list[Transaction] = []

        def execute(call: Call) -> Steps:
            world.caller = self
            chain = world.chains.setdefault(lost, [])
            match call.name:
                case "is_recorded":
                    return len(chain) + (lost in world.closed) >= call.args[0]
                case "close":
                    if len(chain) >= call.args[0] or lost in world.closed:
                        return False
                    world.closed.add(lost)
                    return True
                case "is_closed":
                    return lost in world.closed and call.args[0] == len(chain) + 1
                case "prepare":
                    if world.damaged:
                        raise LostTransactionError(f"{uid}: the spool is gone", [lost.id])
                    id_ = self._take_id(uid, lost.epoch, lost.epoch - 1)
                    made = world.sinks[uid].begin(id_, lost.epoch, self.generation)
                    made.rewrites = lost
                    own.append(made)
                    yield
                    world.sinks[uid].write(made, lost.rows)
                case "record_over":  # by a planted bug alone
                    chain[:] = [*chain, own[-1]]
                case "record":
                    if len(chain) < call.args[0] and lost not in world.closed:
                        chain.append(own[-1])
                        return True
                    world.abort(uid, own[-1])
                    return False
                case "commit" | "commit_own":  # the second by a planted bug alone
                    if lost in world.closed and call.args[0] > len(chain):
                        raise LostTransactionError(f"{uid}: {lost} is given up", [lost.id])
                    if call.name == "commit" and len(chain) < call.args[0]:
                        raise CommitFailedError("the record is gone")
                    chosen = own[-1] if call.name == "commit_own" else chain[call.args[0] - 1]
                    try:
                        world.commit(uid, chosen)
                    except LostTransactionError:
                        return False
                    return True

        yield from stepwise(
            lambda rewrites, _: steps(rewrites),
            world.uids,
            execute,
            lambda point: None,
        )

    # --- the threads

    def _stream(self) -> Steps:
        """Spark's stream thread, after the work of `Coordinator.start` before the query."""
        p = self.protocol
        yield
        self.generation = yield from self._run(lambda records, _: p.take_over(records))
        yield
        decided = yield from self._run(lambda r, s: p.recover(self.generation, r, s))
        self.last_stored = self.last_committed = decided
        self.committer = Thread("commit", self._commit_loop())
        self.threads.insert(0, self.committer)

        world = self.world
        yield
        planned = max(world.offsets, default=-1)
        yield
        committed = world.latest_decision()
        again = planned not in (committed, -1)  # it does not know its newest plan is decided
        epoch = planned if again else planned + 1
        if epoch - 1 not in world.offsets and epoch > 0:
            raise SparkFailedError(f"offsets/{epoch - 1} does not exist")
        start = world.offsets.get(epoch - 1, 0)
        end = world.offsets.get(epoch) if again else None
        while True:
            if end is None:
                yield lambda start=start: world.available > start  # type: ignore[misc]
                end = world.plan(epoch, start)
            yield
            yield from self._foreach_batch(epoch, tuple(range(start, end)))
            yield
            world.decide(epoch)
            start, end, epoch = end, None, epoch + 1

    def _foreach_batch(self, epoch: int, rows: tuple[int, ...]) -> Steps:
        world, p = self.world, self.protocol
        self.entered = epoch
        self._passed(Point.EPOCH_STARTED)
        p.check_continuity(epoch, self.last_stored)
        settled = self.last_committed
        self.staged[epoch] = {uid: [] for uid in world.uids}
        retried = skips = False
        if world.setup.at_most_once:
            claimed = yield from self._run(lambda r, _: p.claim_epoch(epoch, self.generation, r))
            skips = not claimed
        if skips:
            world.skipped |= set(rows)
        for uid, sink in () if skips else world.sinks.items():
            written = self.staged[epoch][uid]
            # Another attempt may split the rows another way: the plan is not deterministic.
            parts = [rows[t :: world.setup.tasks] for t in range(world.setup.tasks)]
            for part in parts if self.generation % 2 else [r[::-1] for r in reversed(parts)]:
                if not part:
                    continue
                yield
                if p.seen_before(world, uid, epoch):
                    continue
                if self.fail_task:
                    self.fail_task, retried = False, True
                    dead = sink.begin(self._take_id(uid, epoch, settled), epoch, self.generation)
                    sink.write(dead, part)
                    yield
                transaction = sink.begin(self._take_id(uid, epoch, settled), epoch, self.generation)
                yield
                sink.write(transaction, part)
                written.append(transaction)
        yield lambda: bool(self.failure) or len(self.uncommitted) < world.setup.max_concurrent
        if self.failure:
            raise SparkFailedError("the coordinator has stopped")
        self.storing = True
        try:
            if world.setup.at_most_once:
                yield from self._commit_early(epoch)
            yield from self._run(
                lambda records, _: p.store_attempt(
                    epoch, self.generation, self.staged[epoch], records
                )
            )
            self.last_stored = epoch
            if retried:
                keep = tuple(
                    t
                    for e in (*self.uncommitted, epoch)
                    for w in self.staged[e].values()
                    for t in w
                )
                yield from self._run(lambda _, s: self._abort_lingering(s, keep))
            self.uncommitted.append(epoch)
        finally:
            self.storing = False

    def _commit_early(self, epoch: int) -> Steps:
        """Make the rows visible before the decision; nothing stored is left to commit."""
        for uid, written in self.staged[epoch].items():
            for transaction in written:
                yield
                self.world.caller = self
                self.world.commit(uid, transaction)
        self.staged[epoch] = {uid: [] for uid in self.world.uids}

    def _take_id(self, uid: str, epoch: int, settled: int) -> str:
        owner = f"{self.name}-{self.generation}"
        return self.protocol.take_id(self.ids, f"{uid}-{owner}", uid, epoch, settled)

    def _commit_loop(self) -> Steps:
        while True:
            yield lambda: bool(self.uncommitted) or self.ended
            if not self.uncommitted:
                return
            epoch = self.uncommitted[0]
            yield lambda epoch=epoch: self._decided(epoch) or self.ended  # type: ignore[misc]
            if not self._decided(epoch):
                return
            yield from self._run(
                lambda r, s, epoch=epoch: self.protocol.commit_attempt(epoch, self.generation, r, s)
            )
            self.last_committed = epoch
            self.uncommitted.remove(epoch)

    def _decided(self, epoch: int) -> bool:
        return self.protocol.is_decided(self.world, epoch) or self.entered > epoch

    def _sweep(self) -> Steps:
        yield
        yield from self._run(lambda r, _: procedures.check_fence(r, self.generation))
        yield from self._run(lambda _, s: [s.abort_lingering(u, self.generation) for u in s.uids])
        self.threads = [t for t in self.threads if t.name != "sweep"]

    def _abort_lingering(self, sinks: Any, keep: tuple[Transaction, ...]) -> None:
        for uid in sinks.uids:
            sinks.abort_lingering(uid, self.generation + 1, keep)

    def _finish(self) -> Steps:
        """Spark's query ends first (Python code in it runs to its end), then the rest is settled:
        not after a failure of the commit thread, where the next driver does it."""
        yield lambda: not self.storing
        self.stream.done = True
        self.ended = True
        if self.committer is not None:
            yield lambda: self.committer is None or self.committer.done
            if self.failure is None:
                known = tuple(self.uncommitted)
                yield from self._run(
                    lambda r, s: self.protocol.settle_own(self.generation, known, r, s)
                )
                yield from self._run(lambda _, s: self._abort_lingering(s, ()))
        self.finished = True


class Operator(Driver):
    """`seamark txn accept-loss`, run once for every loss that can be one: of the oldest epoch
    without a committed record, at each sink. It claims no generation and starts no query."""

    def _stream(self) -> Steps:
        yield
        world = self.world
        uncommitted = [e for e in sorted(world.epochs()) if e not in world.confirmed]
        for uid in world.uids if uncommitted else ():
            loss = Acceptance(uncommitted[0], uid)
            try:
                yield from self._run(lambda r, s, loss=loss: self.protocol.accept_loss(loss, r, s))
            except (LossRefusedError, CommitFailedError, FencedError):
                continue  # nothing is lost at this sink, or it cannot tell
        self.finished = True


class Sweeper(Driver):
    """`seamark txn abort --all-lingering`: takes the job over, fences the older drivers, and aborts
    what the verdict says, as `checkpoint/transactions.py` does. It commits nothing."""

    def _stream(self) -> Steps:
        world, p = self.world, self.protocol
        yield
        self.generation = yield from self._run(lambda records, _: p.take_over(records))

        def fence(records: Any, _: Any) -> Any:
            older = [g for g in records.generations() if g < self.generation]
            return p.fence(older, self.generation, records)

        yield from self._run(fence)
        yield
        leases, latest = world.generations(), world.latest_decision()
        yield
        stored = {  # before the sinks are asked: what is settled by then is not open any more
            transaction: (generation, world.epoch(epoch), epoch <= latest)
            for (epoch, generation), parts in world.stored.items()
            if epoch not in world.confirmed
            for transactions in parts.values()
            for transaction in transactions
        }
        yield
        for uid, sink in world.sinks.items():
            yield
            for transaction in sink.open():
                gone = p.aborts(transaction.generation, self.generation)
                driver = DriverState.IS_GONE if gone else DriverState.LIVES
                verdict = of_unstored(transaction.generation, leases, driver)
                if transaction in stored:
                    generation, record, decided = stored[transaction]
                    verdict = of_stored(generation, record, decided=decided, driver=driver)
                yield
                if verdict is Verdict.SAFE_TO_ABORT:
                    world.caller = self
                    world.abort(uid, transaction)
        self.finished = True


class Restorer(Driver):
    """`seamark run -s` under the job's name: takes the current lineage over, settles it as a run
    without epochs does, copies its newest checkpoint, and supersedes it. Then it runs the next."""

    def _stream(self) -> Steps:
        world, p = self.world, self.protocol
        yield
        self.generation = yield from self._run(lambda records, _: p.take_over(records))
        yield
        decided = yield from self._run(lambda r, s: p.recover(self.generation, r, s))
        yield from self._run(lambda r, s: p.settle_own(self.generation, (), r, s))
        yield from self._run(lambda _, s: self._abort_lingering(s, ()))
        yield
        if decided >= 0 and decided not in world.offsets:
            raise SparkFailedError(f"offsets/{decided} was deleted: a newer driver has gone on")
        successor = world.restored(decided)
        yield
        yield from self._run(lambda r, _: p.supersede(self.generation, successor, r))
        self.world, self.generation = successor, 0
        yield from super()._stream()
