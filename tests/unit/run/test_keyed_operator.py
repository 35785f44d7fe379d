"""A keyed operator whose epochs end anywhere keeps the order of each key's rows and timers.

How: the operator runs over the state of Spark's own test kit (`TwsTester`'s), in a loop that calls
it as Spark's tasks do. A row takes one unit of a clock that only rows move, so deadlines fall
between any two rows. Hypothesis draws rows and deadlines. The watermark is that of
`held_watermark`.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import StructType

from seamark.checkpoint.drained import raised
from seamark.contracts.keyed_process import KeyedContext, KeyedProcessFunction
from seamark.run import keyed_operator
from seamark.run.held_watermark import Held
from seamark.run.keyed_operator import DEADLINE, WATERMARKS, InFlight, KeyedOperator

# Spark 4.0 and 4.1 have no test kit.
tws_tester = pytest.importorskip("pyspark.sql.streaming.tws_tester")

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
OUTPUT = pa.schema(
    [("k", pa.string()), ("what", pa.string())]
    + [(name, pa.int64()) for name in ("v", "at", "count")]
)
Input = Row("k", "v", "at")
DELAY = 3
TIMER_AFTER = 4


class Clock:
    """Stands for the module `time`: rows move it."""

    now = 0.0

    def time(self) -> float:
        return self.now

    monotonic = time


class Recorder(KeyedProcessFunction):
    """Gives each row and each timer as it is processed; each row registers a timer."""

    def __init__(self, clock: Clock, event_time: bool) -> None:
        self._clock = clock
        self._event_time = event_time

    def open(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n LONG")

    def process_element(self, row: Any, context: KeyedContext) -> Iterator[Any]:
        self._clock.now += 1
        count = (self._count.get() or (0,))[0] + 1
        self._count.update((count,))
        at = int(row.at.timestamp() * 1000)
        if self._event_time:
            context.register_timer(at + TIMER_AFTER)
        yield row.k, "row", row.v, at, count

    def on_timer(self, timestamp_ms: int, context: KeyedContext) -> Iterator[Any]:
        yield context.key[0], "timer", -1, timestamp_ms, 0


class Client:
    """Stands for Spark's connection between a task and its state; one per task."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._iterators: dict[str, list[tuple[int, Any]]] = {}

    def set_implicit_key(self, key: Any) -> None:
        self._handle.setGroupingKey(key)

    def _serialize_to_bytes(self, schema: Any, values: Any) -> bytes:
        return repr(schema.toInternal(values)).encode()

    def get_expiry_timers_iterator(self, id_: str, expiry: int) -> tuple[Any, int, bool]:
        if id_ not in self._iterators:
            timers = self._handle._timers._key_to_timers
            self._iterators[id_] = sorted(
                (at, key) for key, ats in timers.items() for at in ats if at < expiry
            )
        if not self._iterators[id_]:
            raise StopIteration
        at, key = self._iterators[id_].pop(0)
        return key, at, not self._iterators[id_]


class Partition:
    """A state partition, and the epochs over it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, event_time: bool) -> None:
        self.clock = Clock()
        monkeypatch.setattr(keyed_operator, "time", self.clock)
        monkeypatch.setattr(keyed_operator, "TaskContext", SimpleNamespace(get=lambda: self))
        self._handle = tws_tester._InMemoryStatefulProcessorHandle("ProcessingTime")
        self.told = InFlight()
        self.watermark = 0
        self.before = 0
        self.newest = 0
        self.epoch = -1
        self._event_time = event_time
        self._held = Held()
        self._properties: dict[str, str] = {}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties.get(name)

    def run(self, rows: list[Any], budget: float) -> list[tuple[Any, ...]]:
        """Run an epoch, and return its results; `budget`: after how many rows the deadline is."""
        self.epoch += 1
        client = self._handle._statefulProcessorApiClient = Client(self._handle)
        self._properties = {
            "streaming.sql.batchId": str(self.epoch),
            DEADLINE: f"{self.clock.now} {budget}",
            WATERMARKS: json.dumps({"recorder": self.before}),
        }
        report = SimpleNamespace(add=lambda told: setattr(self, "told", told[""]))
        operator = KeyedOperator(
            "recorder",
            Recorder(self.clock, self._event_time),
            SCHEMA,
            ["k"],
            OUTPUT,
            "at" if self._event_time else "",
            report,  # type: ignore[arg-type]
        )
        operator.init(self._handle)
        found = [tuple(result) for result in self._results(operator, client, rows)]
        operator.close()
        self._next_watermark(rows)
        return found

    def _results(self, operator: KeyedOperator, client: Client, rows: list[Any]) -> Iterator[Any]:
        times = TimerValues(self.epoch * 1000, self.watermark)
        for k, of_key in itertools.groupby(sorted(rows, key=lambda row: row.k), lambda r: r.k):
            client.set_implicit_key((k,))
            yield from operator.handleInputRows((k,), of_key, times)
        until = self.watermark if self._event_time else self.epoch * 1000
        last = False
        while not last:
            try:
                key, at, last = client.get_expiry_timers_iterator("Spark's", until)
            except StopIteration:
                break
            client.set_implicit_key(key)
            yield from operator.handleExpiredTimer(key, times, ExpiredTimerInfo(at))
            self._handle.deleteTimer(at)

    def _next_watermark(self, rows: list[Any]) -> None:
        self.newest = max([self.newest, *(at_of(row) for row in rows)])
        self.before = self.watermark
        hold = self._held.after(self.epoch, self.told, self.watermark)
        self.watermark = int(max(self.watermark, min(self.newest - DELAY, hold)))


def at_of(row: Any) -> int:
    return int(row.at.timestamp() * 1000)


drawn_rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=8)
Drawn = list[tuple[list[tuple[str, int]], int]]
drawn = st.lists(st.tuples(drawn_rows, st.integers(0, 5)), min_size=1, max_size=10)


def input_rows(drawn: list[tuple[str, int]], epoch: int, first: int) -> list[Any]:
    """Return rows; `v` counts them over all epochs, event times go on with the epochs."""
    return [
        Input(k, first + i, datetime.fromtimestamp((epoch * 4 + at) / 1000, timezone.utc))
        for i, (k, at) in enumerate(drawn)
    ]


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_operator, "CHUNK_ROWS", 2)
        patch.setattr(keyed_operator, "LEAST_S", 0)
        yield patch


_many = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=100, **_many)
@given(drawn)
def test_rows_and_timers_keep_their_order(patch: pytest.MonkeyPatch, drawn: Drawn) -> None:
    check_event_time(Partition(patch, event_time=True), drawn)


@settings(max_examples=100, **_many)
@given(drawn, st.sampled_from([1, 2, 5, 2000]), st.sampled_from([1, 2, 16]))
def test_no_row_is_passed_by_younger_ones(
    patch: pytest.MonkeyPatch, drawn: Drawn, most: int, first: int
) -> None:
    patch.setattr(keyed_operator, "CHUNK_ROWS", most)
    patch.setattr(keyed_operator, "_FIRST_CHUNK_ROWS", first)
    partition = Partition(patch, event_time=False)
    arrived: list[tuple[str, int]] = []
    done: list[tuple[str, int]] = []
    for epoch, (rows_drawn, budget) in enumerate(drawn):
        rows = input_rows(rows_drawn, epoch, 100 * epoch)
        arrived += [(row.k, row.v) for row in rows]
        found = [(k, v) for k, _, v, *_ in partition.run(rows, budget)]
        assert found or len(done) == len(arrived), "an epoch did nothing while rows waited"
        done += found
    while len(done) < len(arrived):
        done += [(k, v) for k, _, v, *_ in partition.run([], 1)]
    epochs = [v // 100 for _, v in done]
    assert epochs == sorted(epochs), "a row was processed before one of an earlier epoch"
    for key in "abc":
        assert [v for k, v in done if k == key] == [v for k, v in arrived if k == key]
    assert not partition.told.waiting


@pytest.mark.parametrize("event_time", [True, False])
def test_a_timer_that_a_timer_registers_fires_in_the_same_epoch(
    patch: pytest.MonkeyPatch, event_time: bool
) -> None:
    """By itself Spark calls it in the next epoch, and never if there is none. At the end of time,
    as of a drain, such a chain would never end."""

    def process_element(self: Recorder, row: Any, context: KeyedContext) -> None:
        self._clock.now += 1
        for timer in (5, 150):
            context.register_timer(timer)

    def on_timer(_: Recorder, timestamp_ms: int, context: KeyedContext) -> Iterator[Any]:
        context.register_timer(timestamp_ms + 300)
        yield context.key[0], "timer", -1, timestamp_ms, 0

    patch.setattr(Recorder, "process_element", process_element)
    patch.setattr(Recorder, "on_timer", on_timer)
    partition = Partition(patch, event_time=event_time)
    assert partition.run(input_rows([("a", 1), ("b", 1)], 0, 0), budget=9) == []
    partition.watermark = 1000  # as the second epoch's start
    found = [(k, at) for k, _, _, at, _ in partition.run([], budget=9)]
    for key in "ab":
        assert [at for k, at in found if k == key] == [5, 150, 305, 450, 605, 750, 905]
    if event_time:
        partition.watermark = raised(1000)
        assert [(k, at) for k, _, _, at, _ in partition.run([], budget=9)] == [
            ("a", 1050), ("b", 1050), ("a", 1205), ("b", 1205)
        ]  # fmt: skip


def test_rows_of_other_columns_are_refused(patch: pytest.MonkeyPatch) -> None:
    partition = Partition(patch, event_time=False)
    partition.run(input_rows([("a", 1), ("a", 2)], 0, 0), budget=1)
    patch.setattr(sys.modules[__name__], "SCHEMA", SCHEMA.append(pa.field("more", pa.int64())))
    with pytest.raises(ValueError, match=r"have the columns k string, v int64.*its former program"):
        partition.run([], budget=1)


def test_rows_wait_over_a_change_of_the_time_zone(patch: pytest.MonkeyPatch) -> None:
    """A restart on another machine may have another session time zone: its default."""
    partition = Partition(patch, event_time=True)
    rows = input_rows([("a", 1), ("a", 2)], 0, 0)
    first = partition.run(rows, budget=1)
    elsewhere = pa.schema([*list(SCHEMA)[:2], ("at", pa.timestamp("us", tz="Asia/Tokyo"))])
    patch.setattr(sys.modules[__name__], "SCHEMA", elsewhere)
    second = [found for found in partition.run([], budget=1) if found[1] == "row"]
    assert [at for *_, at, _ in [*first, *second]] == [at_of(row) for row in rows]


@pytest.mark.parametrize("result", [("a", "row", 1, 2), {"k": "a", "what": "row"}, "abcde"])
def test_a_result_that_lacks_a_column_is_refused(patch: pytest.MonkeyPatch, result: Any) -> None:
    """Spark would write null into it."""
    patch.setattr(Recorder, "process_element", lambda *_: [result])
    with pytest.raises(ValueError, match=r"\d values for the 5 columns of output_schema \(k, what"):
        Partition(patch, event_time=False).run(input_rows([("a", 1)], 0, 0), budget=1)


def test_no_value_of_a_result_is_altered(patch: pytest.MonkeyPatch) -> None:
    """Arrow, to which Spark hands it, makes 1 of 1.5."""
    patch.setattr(Recorder, "process_element", lambda *_: [("a", "row", 1.5, 1, 1)])
    with pytest.raises(TypeError, match=r"keyed_process 'recorder': v is 1\.5; give a whole"):
        Partition(patch, event_time=False).run(input_rows([("a", 1)], 0, 0), budget=1)


STATE = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in {
                "n": "long", "i": "integer", "x": "double", "b": "boolean", "d": "decimal(9,2)",
                "at": "timestamp", "day": "date",
                "m": {"type": "map", "keyType": "string", "valueType": "double",
                      "valueContainsNull": True},
                "l": {"type": "array", "elementType": "integer", "containsNull": True},
            }.items()
        ],
    }
)  # fmt: skip
NONE = dict.fromkeys(STATE.names)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"n": 1.5}, "n is 1.5; give a whole number"),
        ({"n": True}, "n is True; give a value of its type, int64"),
        ({"i": 2**40}, "i is 1099511627776; give a value of its type, int32"),
        ({"x": "1"}, "x is '1'; give a value of its type, double"),
        ({"b": 1}, "b is 1; give a value of its type, bool"),
        ({"d": Decimal("1.255")}, "d is Decimal.*; give a value of its type, decimal"),
        ({"at": 5}, "at is 5; give a datetime"),
        ({"day": 5}, "day is 5; give a date"),
        ({"l": "ab"}, "l is 'ab'; give a list"),
        ({"l": [2**31]}, "l is 2147483648; give a value of its type, int32"),
        ({"m": {"k": "x"}}, "m is 'x'; give a value of its type, double"),
    ],
    ids=range(11),
)
def test_no_value_of_a_state_is_altered(
    patch: pytest.MonkeyPatch, given: dict[str, Any], says: str
) -> None:
    """Spark stores null for 1.5 as a LONG or 5 as a DOUBLE, and 0 for 2**40 as an INT."""
    with pytest.raises(TypeError, match=f"keyed_process 'recorder': in its state, {says}"):
        stored(patch, tuple({**NONE, **given}.values()))


def test_values_of_a_state_have_its_types(patch: pytest.MonkeyPatch) -> None:
    given = {**NONE, "n": 2.0, "i": np.int64(3), "x": 5, "d": 1, "m": {"k": 1}, "l": (1, None)}
    expected = {**given, "n": 2, "i": 3, "x": 5.0, "d": Decimal("1.00"), "m": {"k": 1.0}}
    expected["l"] = [1, None]
    assert stored(patch, tuple(given.values())) == repr(tuple(expected.values())).encode()
    with pytest.raises(
        ValueError, match=r"\(1,\) has 1 values for the 9 columns of a state \(n, i"
    ):
        stored(patch, (1,))


def stored(patch: pytest.MonkeyPatch, values: tuple[Any, ...]) -> bytes:
    """Return what an operator's state gets."""
    made: list[bytes] = []

    def open_(self: Recorder, handle: Any) -> None:
        client = handle._handle._statefulProcessorApiClient
        patch.setattr(Recorder, "process_element", lambda *_: made.append(
            client._serialize_to_bytes(STATE, values)))  # fmt: skip

    patch.setattr(Recorder, "open", open_)
    Partition(patch, event_time=False).run(input_rows([("a", 1)], 0, 0), budget=1)
    return made[0]


def test_chunks_are_bounded_in_bytes(patch: pytest.MonkeyPatch) -> None:
    """So a task holds no 2,000 rows of any size."""
    patch.setattr(keyed_operator, "CHUNK_ROWS", 2000)
    patch.setattr(keyed_operator, "CHUNK_BYTES", 2**14)
    lengths, pack = [], KeyedOperator._pack

    def noted(self: KeyedOperator, rows: list[Any]) -> bytes:
        lengths.append(len(rows))
        return pack(self, rows)

    patch.setattr(KeyedOperator, "_pack", noted)
    partition = Partition(patch, event_time=False)
    long, short = "a" * 2**12, "b"
    partition.run(input_rows([(long, 0)] * 50 + [(short, 0)] * 2000, 0, 0), budget=1)
    assert lengths[:3] == [16, 3, 3], "first nothing is known of the rows"
    assert max(lengths) > 300, "small rows have large chunks"
    found = [v for _, _, v, *_ in partition.run([], math.inf)]
    assert found == list(range(1, 2050))


def test_the_rest_of_a_cut_chunk_is_not_replaced(patch: pytest.MonkeyPatch) -> None:
    """A new task begins with small chunks, and cuts a large one of a task before it."""
    patch.setattr(keyed_operator, "CHUNK_ROWS", 2000)
    partition = Partition(patch, event_time=False)
    found = [v for _, _, v, *_ in partition.run(input_rows([("a", 0)] * 3000, 0, 0), budget=1)]
    while len(found) < 3000:
        done = [v for _, _, v, *_ in partition.run([], budget=10)]
        assert done, f"{3000 - len(found)} rows never come"
        found += done
    assert found == list(range(3000))
    assert not partition.told.waiting


def test_what_is_unknown_after_a_restart_stays_at_the_watermark() -> None:
    held = Held()
    assert held.after(7, InFlight(waiting={5: 2}), 100) == 100
    told = InFlight(waiting={5: 1, 8: 1}, oldest_ms=130, stored_new_rows=True)
    assert held.after(8, told, 100) == 100
    assert held.after(9, InFlight(waiting={8: 1}), 100) == 130
    assert held.after(10, InFlight(), 130) == math.inf


def check_event_time(partition: Partition, drawn: Drawn) -> None:
    arrived: dict[str, list[tuple[int, int, int]]] = {k: [] for k in "abc"}  # v, at, watermark
    done: dict[str, list[int]] = {k: [] for k in "abc"}
    timers: dict[str, set[int]] = {k: set() for k in "abc"}
    late_before, first = 0, 0
    nothing: Drawn = [([], 3)] * 30
    for epoch, (rows_drawn, budget) in enumerate([*drawn, *nothing]):
        rows = input_rows(rows_drawn, epoch, first)
        first += len(rows)
        rows = [row for row in rows if at_of(row) >= late_before]  # as Spark filters late rows
        for row in rows:
            arrived[row.k].append((row.v, at_of(row), late_before))
        before = partition.watermark
        for k, what, v, at, count in partition.run(rows, budget):
            if what == "row":
                place = len(done[k])
                assert arrived[k][place][0] == v, "a row came out of the order of its key"
                done[k].append(v)
                assert count == len(done[k])
                due = {t for t in timers[k] if t < min(at, arrived[k][place][2])}
                assert not due, f"row {v} was processed before the key's timers {due}"
                timers[k].add(at + TIMER_AFTER)
            else:
                assert at in timers[k] and at < before
                timers[k].remove(at)
                waiting = [r for r in arrived[k][len(done[k]) :] if r[1] <= at]
                assert not waiting, f"timer {at} fired before rows {waiting} of its key"
        late_before = before
    assert done == {k: [v for v, *_ in rows] for k, rows in arrived.items()}
    assert all(t >= partition.watermark for ts in timers.values() for t in ts)
    assert not partition.told.waiting
