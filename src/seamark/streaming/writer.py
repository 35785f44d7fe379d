"""`write_stream`, and the writer that it returns: pyspark's `DataStreamWriter`, name by name."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seamark.api.checks import as_option, one_of
from seamark.api.config import CheckpointConfig
from seamark.api.rest_config import RestConfig
from seamark.contracts.sink import OUTPUT_MODES, TwoPhaseCommitSink
from seamark.contracts.write_ahead import EpochToken
from seamark.files.location import storage_uri
from seamark.model.errors import ConfigurationError
from seamark.model.home import temporary_directory
from seamark.run.declaring import require_sink
from seamark.sinks.write_ahead import WriteAheadSink
from seamark.sinks.write_ahead.foreach_batch import ForeachBatchSink
from seamark.spark.session import require_stream
from seamark.streaming.formats import Options, Place, sink_of
from seamark.streaming.job import StreamJob, Trigger
from seamark.streaming.query import StreamQuery
from seamark.streaming.tables import Table, find_table
from seamark.streaming.trial_sinks import MemoryTable, for_each_row

LOCATION = "checkpointLocation"
_CONFIGURED = "spark.sql.streaming.checkpointLocation"
_FOR_TRIALS = ("console", "memory", "noop")
"""They need no checkpoint location, as in Spark: they get one that goes with the program."""


def write_stream(
    dataframe: DataFrame,
    sink: TwoPhaseCommitSink[Any] | None = None,
    *,
    checkpoint: CheckpointConfig | None = None,
    rest: RestConfig | None = None,
    on_bad_row: Literal["fail", "dead_letter"] = "fail",
    dead_letters: TwoPhaseCommitSink[Any] | None = None,
) -> "DataStreamWriter":
    """Return a writer for a streaming DataFrame, as ``df.writeStream`` does; its sinks keep what
    theirs promise.

    sink: instead of ``format(…)`` and its options.
    checkpoint: what Spark's options do not say: mode, timeout, restart strategy and the like.
        `storage` is said by ``checkpointLocation``, and `interval` by the trigger.
    rest: as for `Job`. `on_bad_row`, `dead_letters`: as for `Job.sink`.
    """
    require_stream(dataframe, "write_stream")
    for given, what in ((sink, "sink"), (dead_letters, "dead_letters")):
        if given is not None:
            require_sink(given, f"write_stream: {what}", dataframe.sparkSession)
    checkpoint = CheckpointConfig() if checkpoint is None else checkpoint
    if not isinstance(checkpoint, CheckpointConfig) or "storage" in checkpoint.given:
        raise ConfigurationError(
            "write_stream: checkpoint has a storage; leave it out: "
            f"the option {LOCATION} says where"
            if isinstance(checkpoint, CheckpointConfig)
            else f"write_stream: checkpoint is {checkpoint!r}; give sm.CheckpointConfig(…)"
        )
    bad_rows = {"on_bad_row": on_bad_row, "dead_letters": dead_letters}
    return DataStreamWriter(dataframe, sink, checkpoint, rest, bad_rows)


@dataclass(eq=False, repr=False)
class DataStreamWriter:
    """Builds one query. Each method but `start` and `toTable` returns the writer.

    Raises ConfigurationError as soon as a value is wrong; `start` raises it for what does not fit
    together.
    """

    _dataframe: DataFrame
    _sink: TwoPhaseCommitSink[Any] | None
    _checkpoint: CheckpointConfig
    _rest: RestConfig | None
    _bad_rows: Mapping[str, Any]
    _format: str | None = None
    _options: dict[str, str] = field(default_factory=dict)
    _output_mode: str = "append"
    _partition_by: tuple[str, ...] = ()
    _query_name: str | None = None
    _trigger: Trigger = field(default_factory=Trigger)
    _table: Table | MemoryTable | None = None

    def format(self, source: str) -> "DataStreamWriter":
        """Set the sink's format: kafka, parquet, json, csv, delta, iceberg, jdbc, console, memory,
        noop (docs/write-stream.md)."""
        self._format = _text(source, "format")
        return self

    def option(self, key: str, value: object) -> "DataStreamWriter":
        """Set an option of the sink, as Spark's own takes it, or ``checkpointLocation``."""
        key = _text(key, "option: its name")
        if not isinstance(value, str | int | float | bool | os.PathLike | None):
            raise ConfigurationError(
                f"write_stream: option {key!r} has a value of type {type(value).__name__}; give "
                "text, a path, a number or a bool"
            )
        for name in [name for name in self._options if name.lower() == key.lower()]:
            del self._options[name]
        if value is not None:
            self._options[key] = as_option(value)
        return self

    def options(self, **options: object) -> "DataStreamWriter":
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> "DataStreamWriter":
        """Set Spark's output mode: append, update or complete."""
        mode = _text(outputMode, "outputMode").lower()
        one_of(mode, OUTPUT_MODES, "write_stream: outputMode")
        self._output_mode = mode
        return self

    def partitionBy(self, *cols: str | list[str]) -> "DataStreamWriter":
        """Set the columns of the files' directories, or of the Delta table's partitions."""
        names = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        given = [name for name in names if isinstance(name, str) and name]
        if wrong := [name for name in names if name not in given]:
            raise ConfigurationError(f"write_stream: partitionBy is {wrong[0]!r}; give text")
        self._partition_by = tuple(given)
        return self

    def clusterBy(self, *cols: object) -> NoReturn:
        """Refuse: no sink here clusters its rows."""
        raise ConfigurationError(
            "write_stream: clusterBy is not supported; make the table with its clustering first, "
            "and leave clusterBy out"
        )

    def queryName(self, queryName: str) -> "DataStreamWriter":
        """Set the query's name; the job's name is made of it."""
        _text(queryName, "queryName")
        self._query_name = queryName
        return self

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,
        realTime: str | None = None,
    ) -> "DataStreamWriter":
        """Set when rows are processed: give one argument. Without a trigger epochs follow one
        another at once."""
        given = locals().items()
        chosen = {name: value for name, value in given if value is not None and value is not self}
        if len(chosen) != 1:
            raise ConfigurationError(
                f"write_stream: trigger has {', '.join(chosen) or 'no argument'}; give exactly one "
                "of processingTime, availableNow, once"
            )
        ((name, value),) = chosen.items()
        if name == "processingTime":
            self._trigger = Trigger(_interval_s(self._dataframe.sparkSession, value))
            return self
        if name in ("once", "availableNow") and value is not True:
            raise ConfigurationError(f"write_stream: trigger {name} is {value!r}; give True")
        if name in ("continuous", "realTime"):
            raise ConfigurationError(
                f'write_stream: trigger {name} is not supported: give processingTime="0 seconds". '
                'For rows within milliseconds from Kafka to Kafka: sm.Job and run(execution="real-'
                'time")'
            )
        self._trigger = Trigger(bounded=True, once=name == "once")
        return self

    def foreach(self, f: object) -> "DataStreamWriter":
        """Call ``f(row)``, or ``f.open(partition_id, epoch_id)``, ``f.process(row)`` and
        ``f.close(error)``, for the rows of each decided epoch, in tasks (docs/write-stream.md).
        Raises what PySpark raises for an object without these methods."""
        self._sink = WriteAheadSink.foreach_batch(for_each_row(f), with_epoch=True)
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> "DataStreamWriter":
        """Call ``func(df, batch_id)`` for each epoch with rows, as `foreach_batch` does."""
        self._sink = WriteAheadSink.foreach_batch(func, with_epoch=True)
        return self

    def foreach_batch(
        self, func: Callable[[DataFrame, EpochToken], None], *, idempotent: bool = False
    ) -> "DataStreamWriter":
        """Call ``func(df, token)`` for each epoch with rows, when the epoch is decided: with the
        same rows and the same token until it returns (docs/write-stream.md).

        idempotent: whether `func` keeps the token, in one step with what it writes, and does
            nothing when the token comes again.
        """
        self._sink = WriteAheadSink.foreach_batch(func, idempotent=idempotent)
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> StreamQuery:
        """Start the query; the arguments are those of the methods above.

        Goes on after the last epoch in ``checkpointLocation``, also after a plain query's of
        Spark's. Returns when Spark's query has started. Raises PreflightError,
        DamagedCheckpointError and the like before anything is written, and Spark's errors.
        """
        self.options(**options, **({} if path is None else {"path": path}))
        methods: tuple[Any, ...] = self.format, self.outputMode, self.partitionBy, self.queryName
        given = format, outputMode, partitionBy, queryName
        for method, value in zip(methods, given, strict=True):
            if value is not None:
                method(value)
        return self._job().start()

    def toTable(
        self,
        tableName: str,
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> StreamQuery:
        """Start the query into a table of Spark's catalog, of Parquet, JSON, CSV or Delta. Makes a
        missing table with the DataFrame's columns, when the query can start: at the option
        ``path``, or where Spark puts it, partitioned by `partitionBy`."""
        self.options(**options)
        if partitionBy is not None:
            self.partitionBy(*([partitionBy] if isinstance(partitionBy, str) else partitionBy))
        by, given = self._columns(self._partition_by), self._options
        self._table = table = find_table(
            self._dataframe, tableName, format or self._format, by, given
        )
        self._options, self._partition_by = {**table.options, **given}, tuple(table.partition_by)
        return self.start(table.path, table.format, outputMode, None, queryName)

    def _job(self) -> StreamJob:
        given = dict(self._options)
        place = Place(self._location(given), self._query_name)
        # As in Spark: a Python function of the query may look up what the one at its end has done.
        in_turn = isinstance(self._sink, ForeachBatchSink)
        job = StreamJob(
            place, self._trigger, self._output_mode, self._checkpoint, self._rest, in_turn=in_turn
        )
        sink = self._sink
        if sink is None and (self._format or "").lower() == "memory":
            sink = self._memory(given, place)
        elif sink is None:
            kind = self._format
            if kind is None and "path" in map(str.lower, given):
                kind = self._dataframe.sparkSession.conf.get("spark.sql.sources.default")
            if kind is None:
                raise ConfigurationError(
                    "write_stream: nothing says where the rows go; give format(…) and its options, "
                    "a sink, sm.write_stream(df, sm.KafkaSink(…)), or foreach_batch(fn)"
                )
            sink = sink_of(kind, given, self._columns(self._partition_by), place)
        elif self._format is not None or given or self._partition_by:
            also = {"format": self._format is not None, "partitionBy": self._partition_by}
            methods = [name for name, is_given in also.items() if is_given]
            raise ConfigurationError(
                f"write_stream: {', '.join([*methods, *given])} and a sink are given; the sink "
                "says it all: leave the others out"
            )
        job.declare(self._dataframe, sink, self._bad_rows)
        job.table = self._table
        return job

    def _memory(self, given: Mapping[str, str], place: Place) -> TwoPhaseCommitSink[Any]:
        """Return the sink of format memory; its view is made when nothing refuses the query."""
        Options("memory", given).require_none_left()
        whole = self._output_mode == "complete"
        if place.query_name is None or self._partition_by:
            raise ConfigurationError(
                'write_stream: format "memory" needs queryName, the name of its view, and takes no '
                "partitionBy"
            )
        begun = Path(place.location.removeprefix("file://")) / "offsets"
        if place.location.startswith("file:") and begun.exists() and not whole:
            raise ConfigurationError(
                f"write_stream: the checkpoint in {place.location} has gone on, and the rows of "
                'format "memory" are gone with their program; delete it to start over'
            )
        self._table = table = MemoryTable(self._dataframe, place.query_name, whole=whole)
        return WriteAheadSink.foreach_batch(table.put, with_epoch=True)

    def _columns(self, names: Sequence[str]) -> list[str]:
        """Return the names as the DataFrame writes them: to Spark their case does not matter."""
        own = self._dataframe.columns
        by_name = {name.lower(): name for name in own} | {name: name for name in own}
        return [by_name.get(name, by_name.get(name.lower(), name)) for name in names]

    def _location(self, given: dict[str, str]) -> str:
        """Take the location out of the options, or out of Spark's settings, as Spark does."""
        for name in [name for name in given if name.lower() == LOCATION.lower()]:
            return storage_uri(given.pop(name), f"write_stream: {LOCATION}")
        root = self._dataframe.sparkSession.conf.get(_CONFIGURED, None)
        if not root and (self._format or "").lower() in _FOR_TRIALS:
            made = temporary_directory()
            return storage_uri(f"{made}/{self._query_name or 'query'}", f"write_stream: {LOCATION}")
        if root and self._query_name:
            return storage_uri(
                f"{root.rstrip('/')}/{self._query_name}", f"write_stream: {_CONFIGURED}"
            )
        raise ConfigurationError(
            f"write_stream: nothing says where the checkpoint lies; give .option({LOCATION!r}, "
            f"'/var/lib/checkpoints/clicks'), or a queryName and Spark's setting {_CONFIGURED}"
        )


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"write_stream: {what} is {value!r}; give text")
    return value.strip()


def _interval_s(spark: SparkSession, text: object) -> float:
    """Return the time between two epochs, as Spark reads its own kind of interval."""
    try:
        read = spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(str(text))
        return float(read.intervalMs()) / 1000
    except (PySparkException, Py4JJavaError):
        raise ConfigurationError(
            f"write_stream: trigger processingTime is {text!r}, which Spark does not take as an "
            'interval; give one such as "500 milliseconds" or "1 minute 30 seconds"'
        ) from None
