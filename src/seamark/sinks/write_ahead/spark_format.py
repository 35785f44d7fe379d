"""`WriteAheadSink.spark_format`: writes an epoch's rows with one of Spark's batch writers.

The one sink that knows Spark: it *is* a Spark job, run by the driver at the commit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from seamark.api.checks import as_option, one_of, yes_or_no
from seamark.contracts import spool
from seamark.contracts.sink import OUTPUT_MODES
from seamark.contracts.write_ahead import EpochToken
from seamark.files import HadoopSettings, open_directory
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError, PreflightError, SendRefusedError
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.write_ahead.epoch_spool import SpooledBatches
from seamark.sinks.write_ahead.sink import WriteAheadSink

MODES = ("append", "overwrite")
"""Without Spark's other modes: after an interrupted write they would skip the epoch."""

PLACES = ("token", "epoch", "job_id", "sink_uid")


@dataclass(frozen=True, repr=False)
class SparkFormatSink(WriteAheadSink):
    """See `WriteAheadSink.spark_format`."""

    format: str
    options: Mapping[str, object] = field(default_factory=dict)
    mode: str = "append"
    idempotent: bool = False
    send_timeout: Duration = "10min"

    def __post_init__(self) -> None:
        if not isinstance(self.format, str) or not self.format.strip():
            raise ConfigurationError(
                f"WriteAheadSink.spark_format: format is {self.format!r}; give the name of a batch "
                "writer, e.g. 'jdbc'"
            )
        one_of(self.mode, MODES, f"{self.describe()}: mode")
        if not isinstance(self.options, Mapping):
            raise ConfigurationError(
                f"{self.describe()}: options is a {type(self.options).__name__}; give a dict"
            )
        texts = {
            str(name): as_option(value)
            for name, value in self.options.items()
            if value is not None  # as Spark does: a text "None" would stand in the files for null
        }
        object.__setattr__(self, "options", texts)
        yes_or_no(self.idempotent, f"{self.describe()}: idempotent")
        seconds(self.send_timeout, f"{self.describe()}: timeout")

    def __repr__(self) -> str:
        options = dict.fromkeys(self.options, "***")
        return (
            f"WriteAheadSink.spark_format({self.format!r}, {options!r}, mode={self.mode!r}, "
            f"idempotent={self.idempotent!r}, timeout={self.send_timeout!r})"
        )

    def describe(self) -> str:
        """Return the format and the mode."""
        return f"Spark's batch writer {self.format} ({self.mode})"

    @property
    def output_modes(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`. An epoch that overwrites the earlier ones must have all rows,
        unless it has a place of its own; Delta's `txnVersion` is none."""
        if self.mode == "append":
            return OUTPUT_MODES[:1]
        places = "".join(str(v) for k, v in self.options.items() if k.lower() != "txnversion")
        has_own = "{epoch}" in places or "{token}" in places
        return OUTPUT_MODES if has_own else OUTPUT_MODES[2:]

    @property
    def spark_formats(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`: a connector that the job can add by itself."""
        return [self.format.lower()] if self.format.lower() in ("kafka", "avro") else []

    def check_target(self) -> None:
        """Check that Spark finds the format. Raises PreflightError."""
        from py4j.protocol import Py4JJavaError

        spark = _session()
        look = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
        try:
            look(self.format, spark._jsparkSession.sessionState().conf())
        except Py4JJavaError as error:
            remedy = "Give Spark its connector, e.g. with spark.jars.packages"
            raise PreflightError(
                Finding(FindingCode.SV004, self.describe(), f"{_said(error)}", remedy)
            ) from error

    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """Run one Spark job: its executors read the spool files and write their rows."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, IllegalArgumentException

        assert isinstance(batches, SpooledBatches)
        try:
            writer = spooled_frame(batches).write.format(self.format)
            writer.options(**self._options(token)).mode(self.mode).save()
        except (AnalysisException, IllegalArgumentException) as error:
            raise SendRefusedError(str(error).splitlines()[0]) from error
        except Py4JJavaError as error:
            raise RuntimeError(_said(error)) from error

    def _options(self, token: EpochToken) -> dict[str, str]:
        """Return the options with the epoch's own values filled in."""
        values = {"token": str(token), **vars(token)}
        options = {}
        for name, value in self.options.items():
            text = str(value)
            for place in PLACES:
                text = text.replace(f"{{{place}}}", str(values[place]))
            options[name] = text
        return options


def spooled_frame(batches: SpooledBatches) -> Any:
    """Return one epoch's rows as a DataFrame of the sink's own session; executors read the spool
    files, one in each task."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(batches.schema(), prefer_timestamp_ntz=True)
    files, spark = len(batches.paths), batches.session or _session()
    read = _reader(str(batches.directory), batches.hadoop, batches.paths)
    return spark.range(0, files, 1, files).mapInArrow(read, schema)


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _said(error: Any) -> str:
    """Return the first line of Java's message."""
    return str(error.java_exception).splitlines()[0]


def _reader(
    uri: str, hadoop: HadoopSettings, paths: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for executors; it reads the files with the given numbers."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        directory = open_directory(uri, hadoop)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from spool.read(directory, paths[number])

    return read
