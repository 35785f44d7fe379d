"""The work of a keyed operator's task: process the rows of each key until the epoch's deadline, and
store the others with their key.

Spark calls a `StatefulProcessor` first with the new rows of each key, then with the expired timers
in the order of their times. The operator stores rows in *chunks*, in a map state of their key. Each
chunk has a *turn*: a number below zero, which is the chunk's key in the map, and also the time of a
timer. So Spark calls the chunks' timers before those of the user, in the order of the turns, and in
every later epoch. A turn begins with the number of the epoch: earlier rows come first, whatever
their key.

- Once a chunk waits in a state partition, every new row of the partition goes behind it. No key is
  passed by, and the order of each key's rows stays.
- After the deadline the turns left are not called; their timers stay for the next epoch. Spark has
  no call for it, so the operator stands between Spark and its own iterator of expired timers.
- A task processes at least one row in each epoch.
- With event time, the watermark waits for the oldest row in flight (`held_watermark.py`). A timer
  of the user waits while rows of its key do. Each chunk has the watermark of the epoch before its
  arrival: timers that were due then come before the chunk's rows, all others after them.
"""

import contextlib
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from seamark.contracts.keyed_process import KeyedProcessFunction
from seamark.run.python_values import taking

DEADLINE = "seamark.keyed.deadline"
"""Spark's local property with the epoch's start, in seconds since 1970 by the driver's clock, and
the time from there to its deadline, in seconds; without it, or empty, there is no deadline."""
WATERMARKS = "seamark.keyed.watermarks"
"""Spark's local property with each operator's watermark in the epoch before, as JSON by uid."""
QUERY = "sql.streaming.queryId"
"""Spark's own local property, "" in a batch."""
IN_FLIGHT = "_seamark_in_flight"
"""The map state of a key's chunks."""
CHUNK_ROWS, CHUNK_BYTES = 2000, 4 * 2**20
"""The most rows of a chunk, and about its most bytes: both are in memory when it is made or read.
"""
_FIRST_CHUNK_ROWS, _GROWTH = 16, 4
LEAST_S = 0.25
"""How long a task may process after its first row, even past the deadline: a cold start takes
seconds, and an epoch must not consist of nothing else."""

_FIRST_TURN = -(2**62)
_CHUNK_BITS = 24
_END_MS = 2**47
"""In the year 6429. A watermark beyond is a drain's (`checkpoint/drained.py`), or stands for never.
"""
_ZONE = re.compile(r"(, tz)=[^\]]*")


@dataclass
class InFlight:
    """What the tasks of an epoch tell the driver about rows in flight.

    waiting: by the epoch of their arrival, how many chunks wait for the next epoch. oldest_ms: the
    least event time of this epoch's own rows that were stored, if any was (`stored_new_rows`).
    newest_ms: the greatest event time among stored rows that were processed. stored_bytes,
    processed_bytes: of chunks written and read. watermark_ms: the operator's in this epoch.
    """

    waiting: dict[int, int] = field(default_factory=dict)
    watermark_ms: int | None = None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    stored_new_rows: bool = False
    stored_rows: int = 0
    stored_bytes: int = 0
    processed_rows: int = 0
    processed_bytes: int = 0

    def add(self, other: "InFlight") -> "InFlight":
        """Add another task's figures to these, and return these."""
        for epoch, chunks in other.waiting.items():
            self.waiting[epoch] = self.waiting.get(epoch, 0) + chunks
        self.watermark_ms = _known(max, self.watermark_ms, other.watermark_ms)
        self.oldest_ms = _known(min, self.oldest_ms, other.oldest_ms)
        self.newest_ms = _known(max, self.newest_ms, other.newest_ms)
        self.stored_new_rows |= other.stored_new_rows
        for sum_ in ("stored_rows", "stored_bytes", "processed_rows", "processed_bytes"):
            setattr(self, sum_, getattr(self, sum_) + getattr(other, sum_))
        return self


def _known(choose: Callable[..., int], *values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


Reports = dict[str, InFlight]
"""By the id of the query: several may run over one operator's DataFrame."""


class ReportsParam(AccumulatorParam[Reports]):  # type: ignore[misc]
    """Adds up the figures of tasks; Spark sends those of the winning attempts."""

    def zero(self, value: Reports) -> Reports:
        """Return empty figures."""
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:  # noqa: N802 - Spark's
        """Add `value2` to `value1`."""
        for query, figures in value2.items():
            value1.setdefault(query, InFlight()).add(figures)
        return value1


class _Values:
    """A value state with the value of the current key kept until the turn ends: a call to Spark
    costs as much as processing a row does."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.begin()

    def begin(self) -> None:
        self._read = self._changed = False
        self._value: Any = None

    def end(self) -> None:
        if self._changed and self._value is None:
            self._state.clear()
        elif self._changed:
            self._state.update(self._value)
        self.begin()

    def exists(self) -> bool:
        return self.get() is not None

    def get(self) -> Any:
        if not (self._read or self._changed):
            self._value, self._read = self._state.get(), True
        return self._value

    def update(self, newValue: Any) -> None:  # noqa: N803 - Spark's name
        self._value, self._changed = tuple(newValue), True

    def clear(self) -> None:
        self._value, self._changed = None, True


class _Handle:
    """Spark's handle for the user's state. See `StateHandle`."""

    def __init__(self, handle: Any, values: list[_Values]) -> None:
        self._handle = handle
        self._values = values

    def getValueState(self, stateName: str, schema: Any) -> _Values:  # noqa: N802, N803
        state = _Values(self._handle.getValueState(_own(stateName), schema))
        self._values.append(state)
        return state

    def getListState(self, stateName: str, schema: Any) -> Any:  # noqa: N802, N803
        return self._handle.getListState(_own(stateName), schema)

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any) -> Any:  # noqa: N802, N803
        return self._handle.getMapState(_own(stateName), userKeySchema, valueSchema)


def _own(name: str) -> str:
    if name.startswith("_seamark"):
        raise ValueError(f"state {name!r}: names that begin with '_seamark' are Seamark's own")
    return name


class _Context:
    """See `KeyedContext`. The key's timers are read once per turn."""

    def __init__(self, handle: Any, gone: set[tuple[str, int]]) -> None:
        self._handle = handle
        self._gone = gone
        self._timers: set[int] | None = None
        self.registered = False
        self.key: Any = None
        self.current_watermark = self.current_processing_time = 0

    def begin(self, key: Any, times: Any) -> None:
        self.key, self._timers, self.registered = key, None, False
        self.current_watermark = max(0, times.getCurrentWatermarkInMs())
        self.current_processing_time = times.getCurrentProcessingTimeInMs()

    @property
    def timers(self) -> set[int]:
        if self._timers is None:
            self._timers = {timer for timer in self._handle.listTimers() if timer >= 0}
        return self._timers

    def register_timer(self, timestamp_ms: int) -> None:
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or timestamp_ms < 0:
            raise ValueError(
                f"timer of key {tuple(self.key)!r} is at {timestamp_ms!r}; give whole milliseconds "
                "since 1970"
            )
        self._gone.discard((repr(self.key), timestamp_ms))
        if timestamp_ms not in self.timers:  # Spark would log a warning
            self._handle.registerTimer(timestamp_ms)
            self.timers.add(timestamp_ms)
            self.registered = True

    def delete_timer(self, timestamp_ms: int) -> None:
        if timestamp_ms in self.timers:
            self._handle.deleteTimer(timestamp_ms)
            self.timers.remove(timestamp_ms)
            self._gone.add((repr(self.key), timestamp_ms))

    def list_timers(self) -> list[int]:
        return sorted(self.timers)


class _Cut(NamedTuple):
    """The turn of a chunk, and the watermark before its arrival."""

    turn: int
    due_ms: int


class KeyedOperator(StatefulProcessor):  # type: ignore[misc]
    """Spark's processor for the function with this uid. `input_schema` has the columns of the
    input, `keys` the names of those that make a key, `output` the results' columns; `event_time` is
    the input's column with the watermark, "" in time mode ``"ProcessingTime"``. `report`: the
    tasks' figures."""

    def __init__(
        self,
        uid: str,
        function: KeyedProcessFunction,
        input_schema: pa.Schema,
        keys: Sequence[str],
        output: pa.Schema,
        event_time: str,
        report: Accumulator[Reports],
    ) -> None:
        self._uid = uid
        self._function = function
        self._schema = input_schema
        self._key_types = [input_schema.field(name).type for name in keys]
        self._input = tuple(input_schema.names)
        self._output = tuple(output.names)
        self._takes = [taking(c.type, f"keyed_process {uid!r}: {c.name}") for c in output]
        self._event_time = self._input.index(event_time) if event_time else -1
        self._report = report

    # --- Spark's calls

    def init(self, handle: Any) -> None:
        """Begin a task, or a look at the state's schemas in the driver's plan."""
        self._handle = handle
        self._in_flight = handle.getMapState(IN_FLIGHT, "turn LONG", "due LONG, rows BINARY")
        self._values: list[_Values] = []
        # By the key's text: a key may be a struct, which has no hash, or NaN, which equals nothing.
        self._gone: set[tuple[str, int]] = set()
        self._context = _Context(handle, self._gone)
        self._function.open(_Handle(handle, self._values))
        self._figures = InFlight()
        self._processed = self._turns = 0
        self._chunk_rows = min(_FIRST_CHUNK_ROWS, CHUNK_ROWS)
        self._row, self._result = Row(*self._input), Row(*self._output)
        task = TaskContext.get()
        self._in_task = task is not None
        if task is None:
            return
        self._query = task.getLocalProperty(QUERY) or ""
        self._end_s = _end_s(task.getLocalProperty(DEADLINE))
        before = json.loads(task.getLocalProperty(WATERMARKS) or "{}")
        self._due_before_ms = int(before.get(self._uid, 0))
        self._epoch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        self._client = handle._statefulProcessorApiClient
        self._stored_as: dict[int, tuple[Any, list[Any]]] = {}
        self._to_bytes = self._client._serialize_to_bytes
        self._client._serialize_to_bytes = self._stored
        self._next_expired = self._client.get_expiry_timers_iterator
        self._crowded: bool | None = None
        self._client.get_expiry_timers_iterator = self._next_timer

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Process the new rows of a key, or store them behind the chunks that wait."""
        if self._crowded is None:
            self._crowded = self._chunks_wait()
        if self._crowded:
            self._store(rows)
            return
        with self._turn(key, timerValues):
            yield from self._process(rows)

    def handleExpiredTimer(  # noqa: N802
        self, key: Any, timerValues: Any, expiredTimerInfo: Any  # noqa: N803
    ) -> Iterator[Any]:  # fmt: skip
        """Process a chunk at its turn, or a timer of the user's."""
        timer = expiredTimerInfo.getExpiryTimeInMs()
        with self._turn(key, timerValues):
            if timer >= 0:
                yield from self._results(self._function.on_timer(timer, self._context))
                if self._context.registered and self._now_ms < _END_MS:
                    yield from self._fire_due(timer)  # Spark's iterator began before
                return
            due_ms, rows = self._take(timer)
            if self._event_time < 0:
                yield from self._process(iter(rows), _Cut(timer, due_ms))
                return
            yield from self._fire_due(until_ms=due_ms)
            yield from self._process(iter(rows), _Cut(timer, due_ms))
            if not self._waits():  # Spark's iterator lacks the timers that these rows registered
                yield from self._fire_due()

    def close(self) -> None:
        """Tell the driver; called at the end of a task, and of a look at the state's schemas."""
        if self._in_task:
            self._report.add({self._query: self._figures})
            self._function.close()

    def _stored(self, schema: Any, values: Any) -> bytes:
        """Return a value or a key of a state as Spark stores it; in place of the client's method.
        Raises TypeError for one that Spark would store as another."""
        if id(schema) not in self._stored_as:
            what = f"keyed_process {self._uid!r}: in its state, "
            try:
                columns = to_arrow_schema(schema, timezone="UTC")
                takes = [taking(c.type, what + c.name, stored=True) for c in columns]
            except PySparkException:  # Arrow has no such type
                takes = [None] * len(schema)
            self._stored_as[id(schema)] = schema, takes  # the schema too: an id may come again
        takes = self._stored_as[id(schema)][1]
        if len(values) != len(takes):
            raise ValueError(
                f"keyed_process {self._uid!r}: {values!r} has {len(values)} values for the "
                f"{len(takes)} columns of a state ({', '.join(schema.names)})"
            )
        taken = zip(takes, values, strict=True)
        return bytes(self._to_bytes(schema, tuple(t(v) if t else v for t, v in taken)))

    # --- the order of turns and timers

    def _chunks_wait(self) -> bool:
        """Tell whether chunks wait in this state partition."""
        try:
            self._next_expired(str(uuid.uuid4()), 0)[1]
        except StopIteration:
            return False
        return True

    def _next_timer(self, iterator_id: str, expiry_ms: int) -> tuple[Any, int, bool]:
        """Return the next expired timer that Spark is to call; in place of the client's method."""
        if self._event_time >= 0:
            self._figures.watermark_ms = expiry_ms
        while True:
            stored, timer, last = self._next_expired(iterator_id, expiry_ms)
            key = tuple(map(_as_in_rows, stored, self._key_types))
            if self._is_called(key, timer):
                return key, timer, last
            if last:
                raise StopIteration

    def _is_called(self, key: Any, timer: int) -> bool:
        if timer < 0:
            if late := self._late():
                self._count_waiting(timer)
            return not late
        if (repr(key), timer) in self._gone:
            return False
        if self._event_time < 0 or not self._figures.waiting:
            return True
        self._client.set_implicit_key(key)
        return not self._waits()

    def _late(self) -> bool:
        if not self._processed:
            self._begun_s = time.monotonic()
            return False
        return time.monotonic() >= max(self._end_s, self._begun_s + LEAST_S)

    def _fire_due(self, after_ms: int = -1, until_ms: float = math.inf) -> Iterator[Any]:
        """Fire the key's timers that are due, above `after_ms` and below `until_ms`, in order; also
        those that they register, but at the end of time, where these would never end."""
        times, until_ms = self._context, min(until_ms, self._now_ms)
        known = {*times.timers}
        while due := [
            at
            for at in times.list_timers()
            if after_ms < at < until_ms and (at in known or self._now_ms < _END_MS)
        ]:
            after_ms = due[0]
            yield from self._results(self._function.on_timer(after_ms, times))
            times.delete_timer(after_ms)

    @property
    def _now_ms(self) -> int:
        """The time of the timers."""
        times = self._context
        now_ms = times.current_watermark if self._event_time >= 0 else times.current_processing_time
        return int(now_ms)

    def _waits(self) -> bool:
        """Tell whether the current key has a chunk."""
        return next(iter(self._in_flight.keys()), None) is not None

    # --- rows

    @contextlib.contextmanager
    def _turn(self, key: Any, times: Any) -> Iterator[None]:
        self._context.begin(key, times)
        for value in self._values:
            value.begin()
        yield
        for value in self._values:
            value.end()

    def _process(self, rows: Iterator[Any], cut: _Cut | None = None) -> Iterator[Any]:
        for row in rows:
            if self._late():
                self._store(chain([row], rows), cut)
                return
            yield from self._results(self._function.process_element(row, self._context))
            self._processed += 1

    def _results(self, results: Iterable[Any] | None) -> Iterator[Any]:
        for result in results or ():
            named = result.asDict() if hasattr(result, "__fields__") else result
            if isinstance(named, dict):
                values = [named[name] for name in self._output if name in named]
            else:
                values = [] if isinstance(result, str | bytes) else list(result)
            if len(values) != len(self._output):  # Spark would take null for a missing one
                raise ValueError(
                    f"keyed_process {self._uid!r}: the function gave a {type(result).__name__} "
                    f"with {len(values)} values for the {len(self._output)} columns of "
                    f"output_schema ({', '.join(self._output)}); give each, None for null"
                )
            # Spark hands them to Arrow, which would alter some of other types.
            taken = zip(self._takes, values, strict=True)
            yield self._result(*(take(value) if take else value for take, value in taken))

    def _store(self, rows: Iterator[Any], cut: _Cut | None = None) -> None:
        """Store rows as chunks of the current key; the rest of a chunk that is cut goes just
        before the chunk's turn: the key's earlier chunks are gone."""
        # The rest of a cut chunk has one turn, so it stays whole: a second chunk would replace it.
        while chunk := list(islice(rows, self._chunk_rows if cut is None else None)):
            if cut is None:
                number = _FIRST_TURN + (self._epoch << _CHUNK_BITS)
                turn, due_ms = number + 2 ** (_CHUNK_BITS - 1) + self._turns, self._due_before_ms
                self._turns += 1
                if self._event_time >= 0:
                    self._figures.stored_new_rows = True
                    times = map(self._event_ms, chunk)
                    self._figures.oldest_ms = _known(min, self._figures.oldest_ms, *times)
            else:
                turn, due_ms = cut.turn - 1, cut.due_ms
                self._count_waiting(turn)  # Spark's iterator began before it
            packed = self._pack(chunk)
            fitting = len(chunk) * CHUNK_BYTES // len(packed)
            self._chunk_rows = max(1, min(fitting, _GROWTH * self._chunk_rows, CHUNK_ROWS))
            self._in_flight.updateValue((turn,), (due_ms, packed))
            self._handle.registerTimer(turn)
            self._figures.stored_rows += len(chunk)
            self._figures.stored_bytes += len(packed)

    def _take(self, turn: int) -> tuple[int, list[Any]]:
        """Return the watermark before a chunk's arrival and its rows, and remove the chunk."""
        due_ms, packed = self._in_flight.getValue((turn,))
        self._in_flight.removeKey((turn,))
        rows = self._unpack(packed)
        self._figures.processed_rows += len(rows)
        self._figures.processed_bytes += len(packed)
        if self._event_time >= 0:
            self._figures.newest_ms = _known(
                max, self._figures.newest_ms, *map(self._event_ms, rows)
            )
        return due_ms, rows

    def _count_waiting(self, turn: int) -> None:
        epoch = (turn - _FIRST_TURN) >> _CHUNK_BITS  # in which its rows arrived
        self._figures.waiting[epoch] = self._figures.waiting.get(epoch, 0) + 1

    def _pack(self, rows: list[Any]) -> bytes:
        """Return rows as an Arrow IPC stream (docs/FORMAT.md)."""
        columns = [
            pa.array([row[place] for row in rows], column.type)
            for place, column in enumerate(self._schema)
        ]
        packed = pa.BufferOutputStream()
        with pa.ipc.new_stream(packed, self._schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return bytes(packed.getvalue())

    def _unpack(self, packed: bytes) -> list[Any]:
        with pa.ipc.open_stream(packed) as stream:
            table = stream.read_all()
        if _zoneless(table.schema) != _zoneless(self._schema):
            raise ValueError(
                f"rows in flight have the columns {_columns(table.schema)}, the operator's input "
                f"has {_columns(self._schema)}; let the job process them with its former program "
                "first: run it until its checkpoints have no in-flight rows"
            )
        if table.schema != self._schema:  # the session's time zone may be another one by now
            table = table.cast(self._schema)
        columns = [column.to_pylist() for column in table.columns]
        return [self._row(*values) for values in zip(*columns, strict=True)]

    def _event_ms(self, row: Any) -> int | None:
        at: datetime | None = row[self._event_time]
        return None if at is None else int(at.timestamp() * 1000)


def _end_s(deadline: str | None) -> float:
    """Return the end of an epoch's work by this machine's monotonic clock."""
    if not deadline:
        return math.inf
    begun_s, timeout_s = map(float, deadline.split())
    # The machines' clocks may differ: no task gets more time than the epoch has.
    return time.monotonic() + min(begun_s + timeout_s - time.time(), timeout_s)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _zoneless(schema: pa.Schema) -> str:
    return _ZONE.sub(r"\1", _columns(schema))


def _as_in_rows(value: Any, kind: pa.DataType) -> Any:
    """Return a key's value, as Spark reads it from its state, as rows have it: a timestamp comes as
    this machine's local time without a zone, a struct as a `Row`."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {part.name: _as_in_rows(value[n], part.type) for n, part in enumerate(kind)}
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.scalar(value.astimezone(), kind).as_py()
    return bytes(value) if pa.types.is_binary(kind) else value
