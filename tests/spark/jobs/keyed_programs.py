"""Keyed functions, slow ones among them, their input, and the plain model of what they give."""

from __future__ import annotations

import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import seamark as sm

SCHEMA = "k STRING, v BIGINT, at BIGINT"
CONFIG: dict[str, Any] = {"interval": "100ms", "state_backend": "rocksdb"}
START = 1_700_000_000
KEYS = "abcdefgh"
NUMBERED = "k STRING, n BIGINT, v BIGINT, total BIGINT, seen BIGINT"


class Numbering(sm.KeyedProcessFunction):
    """Numbers the rows of each key; keeps their sum, the last values and how often each came.

    `slow_s` is how long a row takes; each row touches the file `touched`, if there is one."""

    def __init__(self, slow_s: float, touched: str = "") -> None:
        self.slow_s = slow_s
        self.touched = touched

    def open(self, handle: sm.StateHandle) -> None:
        self.total = handle.getValueState("total", "n LONG, total LONG")
        self.last = handle.getListState("last", "v LONG")
        self.times = handle.getMapState("times", "v LONG", "times LONG")

    def process_element(self, row: Any, context: sm.KeyedContext) -> Iterator[Any]:
        if self.touched:
            Path(self.touched).touch()
        time.sleep(self.slow_s)
        assert context.key == (row.k,)
        n, total = self.total.get() or (0, 0)
        self.total.update((n + 1, total + row.v))
        self.last.appendValue((row.v,))
        seen = self.times.getValue((row.v % 3,))
        self.times.updateValue((row.v % 3,), (1 if seen is None else seen[0] + 1,))
        yield row.k, n + 1, row.v, total + row.v, 1 if seen is None else seen[0] + 1


def numbered(values: list[int]) -> list[tuple[int, int, int, int]]:
    """Return what `Numbering` gives for the rows of a key."""
    seen: dict[int, int] = defaultdict(int)
    found, total = [], 0
    for n, v in enumerate(values, 1):
        total += v
        seen[v % 3] += 1
        found.append((n, v, total, seen[v % 3]))
    return found


class Input:
    """A directory of files, each with `rows` rows; keys by chance, the first one most often."""

    def __init__(self, directory: Path, rows: int, seed: int = 0) -> None:
        self.directory = directory
        self.values: dict[str, list[int]] = defaultdict(list)
        self._rows = rows
        self._dice = random.Random(seed)
        self._files = 0
        directory.mkdir(exist_ok=True)

    def add(self, files: int = 1, keys: str = KEYS) -> None:
        """Add files; Spark reads them in this order."""
        for _ in range(files):
            rows = []
            for _ in range(self._rows):
                k = self._dice.choice(keys + 4 * keys[0])
                v = self._dice.randrange(1000)
                self.values[k].append(v)
                at = START + self._files * 10 + self._dice.randrange(10)
                rows.append({"k": k, "v": v, "at": at})
            self.put(rows)

    def put(self, rows: list[dict[str, Any]]) -> None:
        """Add a file of these rows."""
        hidden = self.directory / f".{self._files}"
        hidden.write_text("\n".join(map(json.dumps, rows)))
        os.utime(hidden, (START + self._files, START + self._files))
        hidden.rename(self.directory / f"{self._files:05d}.json")
        self._files += 1

    def read(self) -> list[dict[str, Any]]:
        """Return the rows of all files."""
        return results(self.directory)

    @property
    def rows(self) -> int:
        return sum(map(len, self.values.values()))


def numbering_job(home: Path, slow_s: float, **config: Any) -> sm.Job:
    """Declare a job that numbers the rows of ``home/in`` into ``home/out``."""
    name, touched = config.pop("name", "numbers"), config.pop("touched", "")
    job = sm.Job(name, sm.CheckpointConfig(**{**CONFIG, "storage": str(home / "store"), **config}))
    rows = job.source(events(home), uid="events")
    function = Numbering(slow_s, touched)
    result = sm.keyed_process(rows, "k", function, uid="numbering", output_schema=NUMBERED)
    job.sink(result, sm.FileSink(str(home / "out"), format="json"), uid="out")
    return job


def events(home: Path, **how: Any) -> sm.FileSource:
    one_an_epoch = {"maxFilesPerTrigger": 1}
    return sm.FileSource(str(home / "in"), "json", SCHEMA, options=one_an_epoch, **how)


def with_watermark(rows: DataFrame) -> DataFrame:
    return rows.withColumn("at", F.timestamp_seconds("at")).withWatermark("at", "5 seconds")


def results(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of a file sink, in no order."""
    return [
        json.loads(line)
        for path in directory.rglob("*.json")
        for line in path.read_text().splitlines()
    ]


def check_numbers(home: Path, given: Input) -> None:
    """Every row once, in the order of its key: its number, sum and count tell."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in results(home / "out"):
        found[row["k"]].append((row["n"], row["v"], row["total"], row["seen"]))
    for k, values in given.values.items():
        assert sorted(found[k]) == numbered(values), k


class Sessions(sm.KeyedProcessFunction):
    """Gives each row, and a timer seven seconds after it, with their place in the key's order."""

    def __init__(self, slow_s: float) -> None:
        self.slow_s = slow_s

    def open(self, handle: sm.StateHandle) -> None:
        self.place = handle.getValueState("place", "n LONG")

    def process_element(self, row: Any, context: sm.KeyedContext) -> Iterator[Any]:
        time.sleep(self.slow_s)
        at = int(row.at.timestamp())
        context.register_timer(1000 * (at + 7))
        yield {"k": row.k, "n": self._next(), "what": "row", "at": at, "v": row.v}

    def on_timer(self, timestamp_ms: int, context: sm.KeyedContext) -> Iterator[Any]:
        yield context.key[0], self._next(), "timer", timestamp_ms // 1000, -1

    def _next(self) -> int:
        n = (self.place.get() or (0,))[0] + 1
        self.place.update((n,))
        return n


def sessions_job(home: Path, slow_s: float, **config: Any) -> sm.Job:
    """Declare a job over ``home/in`` with timers in event time, into ``home/out``; `ending` is the
    source's."""
    ending = config.pop("ending", "never")
    settings = {**CONFIG, "storage": str(home / "store"), **config}
    job = sm.Job("sessions", sm.CheckpointConfig(**settings))
    rows = with_watermark(job.source(events(home, ending=ending), uid="events"))
    result = sm.keyed_process(
        rows,
        ["k"],
        Sessions(slow_s),
        uid="sessions",
        output_schema="k STRING, n BIGINT, what STRING, at BIGINT, v BIGINT",
        time_mode="EventTime",
    )
    job.sink(result, sm.FileSink(str(home / "out"), format="json"), uid="out")
    return job


class Moments(sm.KeyedProcessFunction):
    """On a machine in New York: gives a row's moment as its state has it, from another turn."""

    def open(self, handle: sm.StateHandle) -> None:
        self.before = os.environ.get("TZ")
        self._set_zone("America/New_York")
        self.at = handle.getValueState("at", "at TIMESTAMP")

    def process_element(self, row: Any, context: sm.KeyedContext) -> None:
        self.at.update((row.at,))
        context.register_timer(1)

    def on_timer(self, timestamp_ms: int, context: sm.KeyedContext) -> Iterator[Any]:
        yield context.key[0], self.at.get()[0]

    def close(self) -> None:
        self._set_zone(self.before)

    def _set_zone(self, zone: str | None) -> None:
        os.environ.pop("TZ", None)
        os.environ.update({} if zone is None else {"TZ": zone})
        time.tzset()


class Keys(sm.KeyedProcessFunction):
    """Gives its key as text and as it is, for a row and for a timer."""

    def process_element(self, row: Any, context: sm.KeyedContext) -> Iterator[Any]:
        context.register_timer(0)
        yield "row", repr(context.key), *context.key

    def on_timer(self, timestamp_ms: int, context: sm.KeyedContext) -> Iterator[Any]:
        yield "timer", repr(context.key), *context.key


def check_sessions(home: Path, given: Input) -> None:
    """Every row and timer once; rows in their order, no timer before an older row of its key."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in results(home / "out"):
        found[row["k"]].append((row["n"], row["what"], row["at"], row["v"]))
    for k, values in given.values.items():
        events = sorted(found[k])
        assert [n for n, *_ in events] == list(range(1, len(events) + 1)), k
        assert [v for _, what, _, v in events if what == "row"] == values, k
        ats = [at for _, what, at, _ in events if what == "row"]
        timers = [at for _, what, at, _ in events if what == "timer"]
        assert timers == sorted({at + 7 for at in ats}), k
        for n, what, at, _ in events:
            older = [m for m, other, t, _ in events if other == "row" and t <= at]
            assert what == "row" or max(older) < n, f"{k}: timer {at} came before an older row"
