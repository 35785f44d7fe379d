"""Spark's side of `DatagenSource`: the data source ``seamark-datagen``, and `rows`, its pure core.

`rows` makes any range of rows from the reader's options. Spark's tasks call it, and so do checks of
a job's written rows. Each column is a function of (seed, column name, row number), by a hash of a
counter (splitmix64). So neither batches nor partitions nor restarts change a row.

An offset is ``{"row": n, "started_ms": t}``: rows before n have been read, and the stream first
started at t. The offset carries t into the checkpoint, so after a restart a source with a clock
goes on as if it had never stopped. Only `row` of a range's start is ever used: if a job dies before
its first epoch is planned, the first start offset is made anew.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from seamark.model.schema import quoted
from seamark.spark.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    register_source,
)

FORMAT = "seamark-datagen"
_BATCH_ROWS = 10_000
_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)


def register(spark: SparkSession) -> None:
    """Register the format with `spark`. Called before each reader is made; idempotent."""
    register_source(spark, DatagenDataSource)


def rows(
    options: Mapping[str, str], start: int, end: int, started_ms: int | None = None
) -> pa.RecordBatch:
    """Return rows `start` up to, not including, `end`, with the columns as Spark sees them.

    `options` is ``DatagenSource(…).reader().options``. `started_ms`, in milliseconds since 1970, is
    the job's first start; only a source with ``start_time="now"`` depends on it.
    """
    config = _parse(options["config"])
    numbers = np.arange(start, end, dtype=np.int64)
    if config["start_us"] is None:
        config = {**config, "start_us": (started_ms or 0) * 1000}
    columns = {
        name: _GENERATORS[field["kind"]][1](numbers, _key(config["seed"], name), field, config)
        for name, field in config["fields"].items()
    }
    return pa.RecordBatch.from_pydict(columns)


class DatagenDataSource(DataSource):  # type: ignore[misc]
    """The data source; workers import it from this module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns as DDL."""
        fields = _parse(self.options["config"])["fields"]
        return ", ".join(
            f"{quoted(name)} {_GENERATORS[f['kind']][0] or _CHOICE_TYPES[type(f['values'][0])]}"
            for name, f in fields.items()
        )

    def streamReader(self, schema: StructType) -> "DatagenReader":  # noqa: N802
        """Return the reader; Spark makes one per query, and one in each worker."""
        return DatagenReader(dict(self.options))


class _Range(InputPartition):  # type: ignore[misc]
    """The rows of one task."""

    def __init__(self, start: int, end: int, started_ms: int) -> None:
        self.start = start
        self.end = end
        self.started_ms = started_ms


class DatagenReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans epochs in a separate Python process of the driver, and makes rows in tasks.

    Spark calls `initialOffset` again until the first epoch is planned, so it must name one moment.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._config = _parse(options["config"])
        self._created_ms = time.time_ns() // 1_000_000
        self._frozen_ms: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start offset of a job without a checkpoint."""
        return {"row": 0, "started_ms": self._created_ms}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of an epoch."""
        limit = self._config["rows_per_epoch"]
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop the clock: rows due later are for the next run."""
        self._frozen_ms = time.time_ns() // 1_000_000

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next epoch: all rows available, or the limit."""
        row = self._available(start["started_ms"])
        if isinstance(limit, ReadMaxRows):
            row = min(row, start["row"] + limit.max_rows)
        # A clock set back must not take rows back.
        return {"row": max(row, start["row"]), "started_ms": start["started_ms"]}

    def _available(self, started_ms: int) -> int:
        if self._config["number_of_rows"] is not None:
            return int(self._config["number_of_rows"])
        now_ms = time.time_ns() // 1_000_000 if self._frozen_ms is None else self._frozen_ms
        return int((now_ms - started_ms) * self._config["rows_per_second"] // 1000)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Cut the epoch's rows into ranges of about the same size, none of them empty."""
        first, count, parts = start["row"], end["row"] - start["row"], self._config["partitions"]
        cuts = [first + count * i // parts for i in range(parts + 1)]
        return [_Range(low, high, end["started_ms"]) for low, high in pairwise(cuts) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Make a range's rows."""
        assert isinstance(partition, _Range)
        for start in range(partition.start, partition.end, _BATCH_ROWS):
            end = min(start + _BATCH_ROWS, partition.end)
            yield rows(self._options, start, end, partition.started_ms)


# --- columns


def _hash(counters: Any, key: Any) -> Any:
    """Return 64 well mixed bits per counter: splitmix64's output function over key and counter."""
    mixed = counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _key(seed: int, name: str) -> Any:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _sequence(numbers: Any, key: Any, field: dict[str, Any], _: Any) -> pa.Array:
    return pa.array(numbers + np.int64(field["start"]))


def _random_int(numbers: Any, key: Any, field: dict[str, Any], _: Any) -> pa.Array:
    # Unsigned throughout: high - low can exceed a signed number.
    offsets = _hash(numbers, key) % np.uint64(field["high"] - field["low"])
    return pa.array((offsets + np.uint64(field["low"] % 2**64)).view(np.int64))


def _choice(numbers: Any, key: Any, field: dict[str, Any], _: Any) -> pa.Array:
    values, bounds = _choices(json.dumps(field))
    shares = (_hash(numbers, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return values.take(pa.array(np.searchsorted(bounds, shares, side="right")))


@lru_cache(maxsize=64)
def _choices(field_json: str) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return the values, and the upper bound in [0, 1) of each but the last."""
    field = json.loads(field_json)
    values = pa.array(field["values"])
    if field["weights"] is None:
        weights = 1.0 / np.arange(1, len(values) + 1, dtype=np.float64) ** field["skew"]
    else:
        weights = np.array(field["weights"], dtype=np.float64)
    return values, np.cumsum(weights)[:-1] / weights.sum()


def _event_time(numbers: Any, key: Any, field: dict[str, Any], of: Mapping[str, Any]) -> pa.Array:
    # In two steps, because number * 1,000,000 overflows for long streams.
    rate = np.int64(of["rows_per_second"])
    whole_s, rest = numbers // rate, numbers % rate
    moments = np.int64(of["start_us"]) + whole_s * 1_000_000 + rest * 1_000_000 // rate
    jitter = _hash(numbers, key) % np.uint64(field["out_of_orderness_us"] + 1)
    return pa.array(moments - jitter.astype(np.int64)).cast(pa.timestamp("us", "UTC"))


def _text(numbers: Any, key: Any, field: dict[str, Any], _: Any) -> pa.Array:
    size = field["size_bytes"]
    if len(numbers) * size >= 2**31:
        raise ValueError(
            f"{len(numbers)} rows of {size} bytes of text are more than one Arrow batch takes; "
            f"ask for at most {(2**31 - 1) // size} rows at a time"
        )
    words = -(-size // 8)
    counters = (numbers[:, None] * words + np.arange(words)[None, :]).ravel()
    letters = _ALPHABET[_hash(counters, key).view(np.uint8).reshape(len(numbers), -1) & 63]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(size)
    data = np.ascontiguousarray(letters[:, :size])
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))


_CHOICE_TYPES = {str: "STRING", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
_Generator = Callable[[Any, Any, dict[str, Any], Mapping[str, Any]], pa.Array]
_GENERATORS: dict[str, tuple[str, _Generator]] = {
    "sequence": ("BIGINT", _sequence),
    "random-int": ("BIGINT", _random_int),
    "choice": ("", _choice),
    "event-time": ("TIMESTAMP", _event_time),
    "text": ("STRING", _text),
}


@lru_cache(maxsize=64)
def _parse(config: str) -> dict[str, Any]:
    """Return the configuration. The dict is shared, so callers must not change it."""
    return dict(json.loads(config))
