"""A driver program: Spark, played in small, around the real coordinator.

Spark's part is that of `tests/model/driver.py`: it starts at the newest entry of the offset log,
plans, runs the tasks, and writes its two logs by exclusive create. The rest is the code that
production runs: coordinator, queue, store, sink commits, spool, statistics, deadlines.
"""

from __future__ import annotations

from typing import Any

from seamark.api.config import CheckpointConfig
from seamark.checkpoint import spool
from seamark.checkpoint.checkpointed_job import CheckpointedJob, QueryRun
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.lineages import lineages_of
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.sink import TwoPhaseCommitSink, WriterContext
from seamark.files.deadline import with_deadlines
from seamark.model import failpoints
from seamark.model.errors import DecisionVoidError, FencedError
from tests.model.driver import Protocol
from tests.model.world import ROWS_PER_EPOCH, SparkFailedError

from .disk import SimulatedFiles
from .machine import Process
from .reality import JOB, Reality, Surroundings
from .sinks import batch, make_sink
from .threads import SimulatedThread

QUIESCE_S = 2.5
PATIENCE_S = 30.0


def config(setup: Surroundings) -> CheckpointConfig:
    return CheckpointConfig(
        interval=0,
        mode="at-most-once" if setup.at_most_once else "exactly-once",
        max_concurrent_checkpoints=setup.max_concurrent,
        min_pause=setup.min_pause_s,
        timeout=setup.timeout_s,
        num_retained=2,
    )


class Driver(Process):
    """One program. `fail_task` lets an attempt of the next task die, or seem to."""

    def __init__(
        self, name: str, world: Reality, checkpoint: CheckpointConfig, protocol: Protocol
    ) -> None:
        super().__init__(name)
        self.world = world
        self.machine = world.machine
        self.protocol = protocol
        self.fail_task = False
        self.stopped_by: BaseException | None = None
        self.asked_to_stop = False
        self.run: Run | None = None
        self._checkpoint = checkpoint
        self._ids: dict[str, int] = {}
        self._attempts = 0
        self.machine.spawn(self, "main", self._main)

    @property
    def generation(self) -> int:
        return self.run.coordinator.generation if self.run is not None else 0

    @property
    def settled(self) -> bool:
        """Whether this driver has committed all the input there is."""
        if self.run is None or self.run.coordinator.failure is not None:
            return False
        done, offsets = self.run.coordinator.last_committed, self.world.offsets
        newest = max(offsets, default=-1)
        return (
            self.run.stream is not None
            and done == newest
            and offsets.get(newest, 0) == self.world.available
        )

    @property
    def told(self) -> str:
        """How far it has come."""
        committed = self.run.coordinator.last_committed if self.run else None
        return (
            f"planned up to {self.world.offsets}, committed up to epoch {committed}, threads: "
            f"{[str(t) for t in self.threads]}"
        )

    def stop(self) -> None:
        """Ask it to stop, as `job.stop` does. From any thread."""
        if not self.asked_to_stop:
            self.asked_to_stop = True
            self.machine.spawn(self, "stop", self._stop)

    def _stop(self) -> None:
        if self.run is not None and self.run.stream is not None:
            self.run.coordinator.drain(PATIENCE_S)
            self.run.stopping = True
            self.run.coordinator.epochs.turn_away()

    def _find_lineage(self) -> None:
        """Find out what goes on under the job's name, as each start does."""
        files: Any = SimulatedFiles(self.world.disk, JOB, lambda effect: effect())
        self.world = self.world.lineages[lineages_of(files)[-1]]

    def _main(self) -> None:
        identity: JobIdentity | None = None
        try:
            for _ in range(self.world.setup.restarts + 1):
                self.stopped_by = None
                try:
                    if self.run is None:
                        self._find_lineage()
                    self.run = Run(self, identity)
                    self.run.live()
                    break
                except Exception as error:
                    self.stopped_by = error
                    self.world.judged(lambda: self.world.check_stop(self, self.stopped_by))
                    fenced = isinstance(error, FencedError)
                    if self.asked_to_stop or (fenced and not isinstance(error, DecisionVoidError)):
                        break
                if self.run is not None:
                    identity = self.run.coordinator.identity or identity
                self.machine.sleep(1.0)
        finally:
            self.alive = False

    def job(self, owned: Any) -> tuple[CheckpointedJob, SimulatedFiles]:
        disk = self.world.disk
        files: Any = SimulatedFiles(disk, self.world.directory, owned)
        logs = SimulatedFiles(disk, f"{self.world.directory}/spark", owned)
        spark: Any = logs
        if self.world.setup.deadlines:
            files, spark = with_deadlines(files), with_deadlines(spark)
        sinks = {uid: make_sink(uid, self.world, self._take_id) for uid in self.world.sinks}
        return CheckpointedJob("job", sinks, CheckpointStore(files, spark), self._checkpoint), logs

    def _take_id(self, uid: str, at: WriterContext) -> str:
        owner = f"{uid}-{self.name}"
        return self.protocol.take_id(self._ids, owner, uid, at.epoch, at.settled_epoch)

    def next_attempt(self) -> int:
        self._attempts += 1
        return self._attempts


class Restorer(Driver):
    """`seamark run -s` of the job's newest checkpoint, under its name: settles the current lineage,
    makes the next one, and supersedes the first, as `savepoints/restore/write.py` does."""

    def _main(self) -> None:
        try:
            self._find_lineage()
            self.run = Run(self, None)
            self._restore(self.run.coordinator)
        except Exception as error:
            self.stopped_by = error
            self.world.judged(lambda: self.world.check_stop(self, self.stopped_by))
        finally:
            self.alive = False

    def _restore(self, coordinator: Coordinator) -> None:
        coordinator.start()
        coordinator.finish()
        if coordinator.left_open:
            return
        epoch = coordinator.last_committed
        new = self.world.restored(epoch)
        files: Any = SimulatedFiles(self.world.disk, new.directory, lambda effect: effect())
        _, logs = self.job(lambda effect: effect())
        for log in ("offsets", "commits") if epoch >= 0 else ():
            files.create(f"spark/{log}/{epoch}", logs.read(f"{log}/{epoch}"))
        store = CheckpointStore(files, files)
        job_id = f"{new.number:032x}"
        store.create_identity(JobIdentity(job_id, job_id, "job", epoch + 1, 0.0))
        assert self.run is not None
        old, successor = self.run._job.store, {"lineage": new.number}
        failpoints.drive(self.protocol.supersede(coordinator.generation, successor, old))


class Run(QueryRun):
    """One run of the query under one coordinator."""

    def __init__(self, driver: Driver, identity: JobIdentity | None) -> None:
        self._driver = driver
        self._world = driver.world
        self._machine = driver.machine
        job, self._logs = driver.job(lambda effect: self._world.owned(self.coordinator, effect))
        self._job = job
        self.coordinator = Coordinator(job, self, commit_deadline_s=60.0)
        self.coordinator.identity = identity
        self.stopping = False
        self.stream: SimulatedThread | None = None
        self._spark_error: BaseException | None = None

    def stop_soon(self) -> None:
        self.stopping = True

    def open_files(self, uri: str) -> Any:
        return self._job.store.files

    def live(self) -> None:
        """Start, run and finish; raise what the run ends with."""
        self.coordinator.start()
        self.stream = SimulatedThread(target=self._run_stream, name="stream")
        if self._driver.asked_to_stop:
            self.stopping = True
        self.stream.start()
        self.stream.join()
        self.coordinator.finish(quiesce_s=QUIESCE_S)
        if self._spark_error is not None:
            raise self._spark_error

    # --- Spark's stream thread

    def _run_stream(self) -> None:
        try:
            self._stream()
        except Exception as error:
            self._spark_error = error

    def _stream(self) -> None:
        world, logs = self._world, self._logs
        planned = max((int(n) for n in logs.list("offsets")), default=-1)
        committed = max((int(n) for n in logs.list("commits")), default=-1)
        again = planned not in (committed, -1)
        epoch = planned if again else planned + 1
        if epoch > 0 and not logs.exists(f"offsets/{epoch - 1}"):
            raise SparkFailedError(f"offsets/{epoch - 1} does not exist")
        start = int(logs.read(f"offsets/{epoch - 1}")) if epoch > 0 else 0
        end = int(logs.read(f"offsets/{epoch}")) if again else None
        while True:
            if end is None:
                self._machine.block(lambda: self.stopping or world.available > start)  # noqa: B023
                if self.stopping:
                    return
                small = world.setup.uneven and self.coordinator.generation % 2
                end = min(world.available, start + ROWS_PER_EPOCH - bool(small))
                self._write_log(f"offsets/{epoch}", str(end).encode())
            self._run_epoch(epoch, tuple(range(start, end)))
            if self.stopping:
                return
            self._write_log(f"commits/{epoch}", b"v1\n{}")
            start, end, epoch = end, None, epoch + 1

    def _write_log(self, path: str, data: bytes) -> None:
        try:
            self._logs.create(path, data)
        except FileExistsError:
            raise SparkFailedError(f"concurrent update: {path} exists") from None

    def _run_epoch(self, epoch: int, rows: tuple[int, ...]) -> None:
        """As `StreamRun._run_epoch` of `run/query.py`."""
        coordinator, world = self.coordinator, self._world
        with coordinator.guarded():
            settled = coordinator.begin_epoch(epoch)
            write = coordinator.claim_epoch(epoch)
        tasks, retried = [], False
        if write:
            tasks, retried = self._run_tasks(epoch, settled, rows)
        else:
            world.skipped |= set(rows)
        with coordinator.guarded():
            coordinator.store_epoch(epoch, tasks, retried=retried)

    # --- Spark's tasks, as `run/pre_commit.py` runs them

    def _run_tasks(
        self, epoch: int, settled: int, rows: tuple[int, ...]
    ) -> tuple[list[TaskReport], bool]:
        count = self._world.setup.tasks
        parts = [rows[t::count] for t in range(count)]
        if self.coordinator.generation % 2:  # another attempt may split the rows another way
            parts = [part[::-1] for part in reversed(parts)]
        reports, retried = [], False
        for number, part in enumerate(parts):
            if not part:
                continue
            if self._driver.fail_task:
                self._driver.fail_task, retried = False, True
                self._attempt(epoch, settled, number, part, dies=True)
            reports.append(self._attempt(epoch, settled, number, part))
        return reports, retried

    def _attempt(
        self, epoch: int, settled: int, number: int, rows: tuple[int, ...], *, dies: bool = False
    ) -> TaskReport:
        identity, attempt = self.coordinator.identity, self._driver.next_attempt()
        assert identity is not None
        parts: dict[str, SinkReport] = {}
        writers: dict[str, tuple[TwoPhaseCommitSink[Any], Any]] = {}
        for uid, sink in self._job.sinks.items():
            if self._driver.protocol.seen_before(self._world, uid, epoch):
                continue
            context = WriterContext(
                job_id=identity.job_id,
                sink_uid=uid,
                generation=self.coordinator.generation,
                epoch=epoch,
                partition_id=number,
                attempt=attempt,
                settled_epoch=settled,
                spool_uri=self._job.store.spool_uri(uid),
            )
            writer = spool.keeping(sink, sink.create_writer(context), context)
            writers[uid] = sink, writer
            writer.write(batch(rows, self._world.ways[uid]))
            parts[uid] = SinkReport(len(rows))
        if not dies:
            for uid, (sink, writer) in writers.items():
                parts[uid].committables = tuple(
                    spool.dump(sink, c) for c in writer.prepare_commit()
                )
        return TaskReport(number, attempt, 0.0, 0.0, parts)
