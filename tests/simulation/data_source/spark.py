"""A Spark that runs the query, and its Python workers, around the real ``format("seamark")``.

A worker makes one call at a time, and keeps its memory from call to call. Spark waits for it,
unless the query is stopped; a worker whose Spark is gone ends its call first.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

from pyspark_seamark import DefaultSource
from seamark.contracts.sink import TwoPhaseCommitSink, WriterContext
from seamark.model.errors import CheckpointError
from seamark.protocol.batches import Try
from tests.model.driver import Protocol
from tests.model.world import ROWS_PER_EPOCH, SparkFailedError

from ..disk import SimulatedFiles
from ..machine import Process
from ..reality import SPOOLED, TWO_PHASE
from ..sinks import TransactionalSink, batch, make_sink
from .world import QueryWorld

SCHEMA = StructType([StructField("row", LongType())])
ATTEMPTS = 3
STOP_S = 1500.0
PLANNER, TASK, COMMITTER = "planner", "task", "committer"


class Interrupted(Exception):  # noqa: N818 - as Spark's own
    """The query is stopped."""


class Call:
    """One call to a worker."""

    def __init__(self, body: Callable[[], Any], task: Any) -> None:
        self.body, self.task = body, task
        self.worker: Worker | None = None
        self._answers: list[tuple[Any, Exception | None]] = []

    def make(self) -> None:
        try:
            self._answers.append((self.body(), None))
        except Exception as error:
            self._answers.append((None, error))

    @property
    def over(self) -> bool:
        assert self.worker is not None
        return bool(self._answers) or not self.worker.alive

    def result(self) -> Any:
        if not self._answers:
            raise SparkFailedError("the Python worker exited unexpectedly")
        answer, error = self._answers[0]
        if error is not None:
            raise error
        return answer


class Worker(Process):
    """One Python worker: `places` and `ids` are what its memory keeps."""

    def __init__(self, spark: Spark, role: str, number: int) -> None:
        super().__init__(f"{spark.name} {role}{number}")
        self.spark, self.role = spark, role
        self.calls: list[Call] = []
        self.task: Any = None
        self.places: dict[Any, Any] = {}
        self.ids: dict[str, int] = {}
        spark.machine.spawn(self, "main", self._serve)

    def _serve(self) -> None:
        try:
            while True:
                self.spark.machine.block(lambda: self.calls or not self.spark.alive)
                if not self.calls:
                    break
                self.task = self.calls[0].task
                self.calls[0].make()
                del self.calls[0]
        finally:
            self.alive = False

    def make_sink(self) -> TwoPhaseCommitSink[Any]:
        """Make the sink of the query's options."""
        world = self.spark.world
        ((uid, way),) = world.ways.items()
        make = OwnSink if way in (TWO_PHASE, SPOOLED) else make_sink
        return make(uid, world, self._take_id)

    def _take_id(self, uid: str, at: WriterContext) -> str:
        owner = f"{at.job_id}-{self.name}"
        protocol = self.spark.protocol
        return protocol.take_id(self.ids, owner, at.job_id, at.epoch, at.settled_epoch)


class OwnSink(TransactionalSink):
    """Lists the transactions of its job alone."""

    def create_committer(self, context: Any) -> Any:
        committer = super().create_committer(context)
        listed: Callable[[], list[Any]] = committer.list_lingering
        committer.list_lingering = lambda: [
            one for one in listed() if one.committable.handle.startswith(context.job_id)
        ]
        return committer


class Spark(Process):
    """One program with one query. `fail_task` lets an attempt of the next task fail, `speculate`
    lets the next task have two."""

    def __init__(self, name: str, world: QueryWorld, protocol: Protocol) -> None:
        super().__init__(name)
        self.spark = self
        self.world, self.machine, self.protocol = world, world.machine, protocol
        self.workers: list[Worker] = []
        self.stopped_by: BaseException | None = None
        self.stopping = self.ending = self.idle = False
        self.operation: int | None = None
        self.fail_task = self.speculate = False
        self.this: Try | None = None
        self.batch, self.at, self.committed = -1, 0, 0
        self._made = 0
        self._attempts = 0
        self.machine.spawn(self, "main", self._main)

    @property
    def generation(self) -> int:
        return self.this.generation if self.this is not None else 0

    @property
    def settled(self) -> bool:
        """Whether this Spark has committed all the input there is."""
        return self.idle and self.at == self.world.available

    @property
    def told(self) -> str:
        calls = [f"{w.name}{' asleep' * w.paused}" for w in self.workers if w.alive and w.calls]
        return f"batch {self.batch}, rows up to {self.at}, workers at work: {calls}"

    @property
    def everybody(self) -> list[Process]:
        return [self, *self.workers]

    def stop(self) -> None:
        """Ask it to stop, at once."""
        self.stopping = self.ending = True

    def alone(self) -> None:
        """Kill every other Spark: an operator is at work."""
        for process in self.machine.processes:
            if process.spark is not self:  # type: ignore[attr-defined]
                process.alive = False

    # --- the program

    def _main(self) -> None:
        try:
            for _ in range(self.world.setup.restarts + 1):
                self.stopped_by, self.stopping = None, self.ending
                try:
                    self._stream()
                except Interrupted:
                    pass
                except Exception as error:
                    self._failed(error)
                self.idle = False
                if self.ending:
                    break
                if self.operation is not None:
                    self._make_room()
                    self.world.operate(self.operation)
                    self.operation = None
                self.machine.sleep(1.0)
        finally:
            self.alive = False

    def _failed(self, error: Exception) -> None:
        self.stopped_by = error
        self.world.judged(lambda: self.world.check_stop(self, error))
        if isinstance(error, CheckpointError) and self.world.put_back is not None:
            self._make_room()
            self.world.mend()

    def _make_room(self) -> None:
        """Wait until the query's workers have made their last calls; end all others."""
        self.alone()
        self.machine.block(lambda: not any(w.calls and w.awake for w in self.workers), STOP_S)
        self.alone()
        for worker in self.workers:
            worker.alive = worker.alive and not (worker.calls or worker.paused)

    # --- the query

    def _stream(self) -> None:
        world = self.world
        files = SimulatedFiles(world.disk, world.checkpoint, world.judged)
        query, options = self._query(files), world.options()
        planned = max((int(n) for n in files.list("offsets")), default=-1)
        committed = max((int(n) for n in files.list("commits")), default=-1)
        again = planned not in (committed, -1)
        batch = planned if again else planned + 1
        if batch > 0 and not world.disk.files.get(f"{world.checkpoint}/offsets/{batch - 1}"):
            raise SparkFailedError(f"offsets/{batch - 1} does not exist")
        self.at = int(files.read(f"offsets/{batch - 1}")) if batch > 0 else 0
        end = int(files.read(f"offsets/{batch}")) if again else None
        while True:
            if end is None:
                self.idle = True
                self._wait(lambda: world.available > self.at)
                self.idle = False
                end = min(world.available, self.at + ROWS_PER_EPOCH)
                self._create(files, f"offsets/{batch}", str(end).encode())
            self.batch = batch
            self._run_batch(options, query, batch, world.rows(self.at, end))
            self._create(files, f"commits/{batch}", b"v1\n{}")
            self.committed += 1
            self.at, end, batch = end, None, batch + 1

    def _query(self, files: SimulatedFiles) -> str:
        try:
            return str(json.loads(files.read("metadata"))["id"])
        except FileNotFoundError:
            made = self.world.new_name("query")
            self._create(files, "metadata", json.dumps({"id": made}).encode())
            return made

    def _create(self, files: SimulatedFiles, path: str, data: bytes) -> None:
        if self.stopping:
            raise Interrupted
        try:
            files.create(path, data)
        except FileExistsError:
            raise SparkFailedError(f"concurrent update: {path} exists") from None

    def _run_batch(
        self, options: dict[str, str], query: str, number: int, rows: tuple[int, ...]
    ) -> None:
        source = DefaultSource(options)
        for_commits = pickle.loads(pickle.dumps(source))
        writer = self._call(PLANNER, lambda: source.streamWriter(SCHEMA, False))
        self.this = writer.this
        told: list[Any] = [None] * self.world.setup.tasks

        def committer() -> Any:
            return for_commits.streamWriter(SCHEMA, False)

        try:
            self._run_tasks(writer, query, number, rows, told)
            self._call(COMMITTER, lambda: committer().commit(told, number))
        except Exception:
            self._begin(COMMITTER, lambda: committer().abort(told, number))
            raise

    def _run_tasks(
        self, writer: Any, query: str, number: int, rows: tuple[int, ...], told: list[Any]
    ) -> None:
        count, failures = len(told), 0
        parts = [rows[t::count] for t in range(count)]
        if self.generation % 2:  # another attempt may split the rows another way
            parts = [part[::-1] for part in reversed(parts)]

        def attempt(task: int) -> Call:
            return self._attempt(writer, query, number, task, parts[task])

        running = [[attempt(task)] for task in range(count)]
        if self.speculate:
            self.speculate = False
            running[0].append(attempt(0))
        while None in told:
            open_ = [task for task in range(count) if told[task] is None]
            self._wait(lambda: any(call.over for task in open_ for call in running[task]))  # noqa: B023
            for task in open_:
                for call in [call for call in running[task] if call.over and told[task] is None]:
                    running[task].remove(call)
                    try:
                        told[task] = call.result()
                    except Exception:
                        failures += 1
                        if failures == ATTEMPTS:
                            raise
                        if not running[task]:
                            running[task].append(attempt(task))

    def _attempt(
        self, writer: Any, query: str, number: int, task: int, rows: tuple[int, ...]
    ) -> Call:
        fails, self.fail_task = self.fail_task, False
        self._attempts += 1
        attempt = self._attempts
        properties = {"streaming.sql.batchId": str(number), "sql.streaming.queryId": query}
        context = SimpleNamespace(
            getLocalProperty=properties.get,
            partitionId=lambda: task,
            attemptNumber=lambda: 0,
            taskAttemptId=lambda: attempt,
        )

        def given() -> Iterator[Any]:
            if rows:
                yield batch(rows, SPOOLED)
            self.machine.step("the task's last row")
            if fails:
                raise SparkFailedError("the task failed in another operator")

        return self._begin(TASK, lambda: writer.write(given()), context)

    # --- its workers

    def _begin(self, role: str, body: Callable[[], Any], task: Any = None) -> Call:
        """Give a call to an idle worker, or to a new one."""
        call = Call(body, task)
        free = [w for w in self.workers if w.role == role and w.awake and not w.calls]
        if not free:
            self._made += 1
            free = [Worker(self, role, self._made)]
            self.workers += free
        call.worker = free[0]
        free[0].calls.append(call)
        return call

    def _call(self, role: str, body: Callable[[], Any]) -> Any:
        call = self._begin(role, body)
        self._wait(lambda: call.over)
        return call.result()

    def _wait(self, ready: Callable[[], object]) -> None:
        self.machine.block(lambda: self.stopping or ready())
        if self.stopping:
            raise Interrupted
