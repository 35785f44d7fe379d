"""One schedule of the query: its world, its Sparks, the events that befall them, and the judgement.

As the coordinator's (`tests/simulation/run.py`). Besides, an operator restores, deletes, copies or
moves the checkpoint and the location, and a query is begun again in the same Spark.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from seamark.datasource.location import SWEEP_S
from seamark.protocol.batches import BatchPoint
from seamark.protocol.write_again import RewritePoint
from tests.model.world import ROWS_PER_EPOCH, Violation

from ..machine import FAULTS, Event, Process
from ..reality import SPOOLED, TWO_PHASE, UPSERT, WRITE_AHEAD
from ..run import MAX_DRIVERS, Schedule, Simulation, drawn, with_some
from .spark import Spark
from .world import QuerySurroundings, QueryWorld


@dataclass(frozen=True)
class QuerySchedule(Schedule):
    """All of a run's luck."""

    @property
    def simulation(self) -> type[Simulation]:
        return QuerySimulation


def schedule_of(seed: int) -> QuerySchedule:
    """Return a seed's schedule: the frequency of each kind of event is drawn first, then events."""
    luck = random.Random(seed)
    way = luck.choice((TWO_PHASE, TWO_PHASE, TWO_PHASE, SPOOLED, WRITE_AHEAD, UPSERT))
    spooled = way == SPOOLED
    setup = QuerySurroundings(
        ways=(way,),
        tasks=luck.choice((1, 1, 2)),
        forgetful=luck.random() < 0.5,
        spool=spooled,
        restarts=luck.choice((0, 0, 2)),
        apart=luck.random() < 0.5,
        unnamed=luck.random() < 0.2,
    )
    kinds = {
        "switch": 20 * luck.random(),
        "crash": 3 * luck.random(),
        "pause": 3 * luck.random(),
        "crash at": 3 * luck.random(),
        "pause at": 5 * luck.random(),
        "wake": 4 * luck.random(),
        "start": luck.random(),
        "stop": luck.random(),
        "interrupt": luck.random(),
        "input": 4 * luck.random(),
        "task": luck.random(),
        "speculation": luck.random(),
        "time-out": 2 * luck.random() * spooled,
        "land": luck.random(),
        **{kind: luck.random() * (luck.random() < 0.5) for kind in FAULTS},
    }
    events = drawn(luck, kinds)
    survivors, twins = luck.random() < 0.5, luck.random() < 0.15
    if luck.random() < 0.4:
        setup = replace(setup, batches=luck.choice((2, 4, 6)))
        events = with_some(luck, events, "operator", 420)
    return QuerySchedule(setup, tuple(events), survivors, twins)


class QuerySimulation(Simulation):
    """One run of a schedule."""

    points = (
        *(point.value for point in BatchPoint),
        *(point.value for point in RewritePoint),
        "batch-flushed", "spool-written", "write-ahead-written", "rows-sent", "sent-recorded",
    )  # fmt: skip

    def _made_world(self) -> QueryWorld:
        assert isinstance(self.schedule.setup, QuerySurroundings)
        return QueryWorld(self.schedule.setup, self.machine)

    def _start(self) -> Spark | None:  # type: ignore[override]
        if len(self.drivers) >= MAX_DRIVERS:
            return None
        return self._begin()

    def _begin(self) -> Spark:
        spark = Spark(f"s{len(self.drivers)}", self._first, self._protocol)
        self.drivers.append(spark)
        return spark

    def _driver_of(self, process: Process) -> Spark:
        return process.spark  # type: ignore[attr-defined,no-any-return]

    def _happens(self, event: Event) -> None:
        thread = self.machine.current
        assert thread is not None
        process, spark = thread.process, self._driver_of(thread.process)
        match event.kind:
            case "interrupt":
                spark.stopping = True
            case "speculation":
                spark.speculate = True
            case "operator" if event.choice % 2 and spark.alive and not spark.ending:
                spark.operation, spark.stopping = event.choice // 2, True
            case "operator":
                spark.alone()
                for other in spark.everybody:
                    other.alive = False
                self._note(f"operator: {self._first.operate(event.choice // 2)}")
                self._start()
                self.machine.crash(process)
            case _:
                super()._happens(event)
                return
        self._note(f"{event.kind} ({thread})")

    def _crash(self, process: Process, choice: int) -> None:
        """A worker or Spark itself dies alone, or all of them at once."""
        if choice % 3:
            for other in self._driver_of(process).everybody:
                other.alive = False
        self.machine.crash(process)

    def _pause(self, process: Process, choice: int) -> None:
        if choice % 3:
            for other in self._driver_of(process).everybody:
                other.paused = True
        self.machine.pause(process)

    def _wake(self, process: Process) -> None:
        for other in self._driver_of(process).everybody:
            other.paused = False

    def _finale(self) -> None:
        for spark in self.drivers:
            if spark.awake:  # a worker that hung
                self._wake(spark)
        super()._finale()

    def _settled(self, driver: Spark) -> None:  # type: ignore[override]
        """What losing attempts of a query that goes on have left open is aborted."""
        before = driver.committed
        self._first.available += ROWS_PER_EPOCH
        if self._settle(driver) and driver.committed > before:
            self.machine.run(lambda: not driver.alive, 3 * SWEEP_S)
            assert driver.this is not None
            if driver.this.number != self._first.newest_try:
                return  # there is another one
            if left := self._first.left_open(driver.generation):
                raise Violation(f"the losers of tasks stay open: {left}")

    def _judge(self) -> None:
        super()._judge()
        self._first.check_decided()
