"""`keyed_process`: a user's function over the rows of each key, with state and timers.

Builds Spark's plan; `keyed_operator.py` is the work of its tasks. A job finds its keyed operators
in its own plan: the operator's output columns carry a mark, taken off by a projection above.
"""

import importlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from seamark.api.checks import one_of
from seamark.api.config import StateBackend
from seamark.api.declarations import JobDeclaration, check_name
from seamark.contracts.keyed_process import KeyedProcessFunction
from seamark.model.errors import ConfigurationError, MissingDependencyError
from seamark.run.keyed_operator import KeyedOperator, Reports, ReportsParam
from seamark.run.process import ZONED, check_zone
from seamark.spark.connect import require_classic
from seamark.spark.planned_query import name_part
from seamark.spark.plans import analysed, items, nodes
from seamark.spark.session import is_local
from seamark.spark.spark_versions import arrow_schema, has_zoned_arrow
from seamark.spark.state_backend import FORMAT, PROVIDER, backend_of

TIME_MODES = ("ProcessingTime", "EventTime")
_MARK = "seamark.keyed_process"
_DELAY = "spark.watermarkDelayMs"
_ZONE = "spark.sql.session.timeZone"
_NO_KEY = re.compile(r'(?:^|"type":)"(?:array|map|variant)"')  # in the JSON of a type
_numbers = itertools.count()


@dataclass(frozen=True)
class DeclaredKeyed:
    """One keyed operator: its uid, its DataFrame, the time zone of its rows' timestamps, and what
    its tasks tell the driver."""

    uid: str
    dataframe: DataFrame
    event_time: bool
    zone: str
    report: Accumulator[Reports]


_declared: dict[str, DeclaredKeyed] = {}
"""By the mark in the plan. As long as the program: its DataFrames may come into a plan later."""


def keyed_process(
    df: DataFrame,
    keys: str | Sequence[str],
    processor: KeyedProcessFunction,
    *,
    uid: str,
    output_schema: str | StructType,
    time_mode: Literal["ProcessingTime", "EventTime"] = "ProcessingTime",
) -> DataFrame:
    """Return the rows that `processor` gives for the rows and timers of each key.

    Spark's ``transformWithState``, with one call per row. In a job with
    ``CheckpointConfig(unaligned=True)`` the rows left at the deadline become in-flight rows of the
    checkpoint, and the next epoch processes them first (docs/keyed-process.md).

    df: a streaming DataFrame, or a plain one: Spark then processes all rows, then all timers.
    keys: the columns that make a key; all rows of a key are processed in one task, in the order in
        which they reach it.
    uid: the operator's name in savepoints, as from `Job.uid`.
    output_schema: columns of the result, as DDL text (``"user STRING, total LONG"``) or StructType.
    time_mode: the time of timers: ``"ProcessingTime"``, the epoch's start, or ``"EventTime"``, the
        watermark, which `df` must have (``withWatermark``).

    The job needs ``state_backend="rocksdb"``. Raises ConfigurationError at once.
    """
    uid = check_name(uid, "keyed_process: uid")
    what = f"keyed_process {uid!r}"
    require_classic(df, what)
    _require_protobuf(what)
    if not isinstance(df, DataFrame):
        raise ConfigurationError(f"{what}: give a DataFrame, found {type(df).__name__}")
    if not has_zoned_arrow():
        raise MissingDependencyError(
            f"{what}: needs Spark 4.2 or later, and this is Spark {df.sparkSession.version}; "
            "upgrade (docs/spark-versions.md)"
        )
    names = _keys(df, keys, what)
    _require_function(processor, what)
    one_of(time_mode, TIME_MODES, f"{what}: time_mode")
    event_time = _event_time(df, what) if time_mode == "EventTime" else ""
    output = _output(df, output_schema, what)
    spark = df.sparkSession
    zone = str(spark.conf.get(_ZONE))
    if ZONED in df.schema.json():
        check_zone(zone, what)
    # In a batch Spark looks for the coordinator of state stores that only a query's manager starts.
    spark.streams.active  # noqa: B018
    report = spark.sparkContext.accumulator({}, ReportsParam())
    operator = KeyedOperator(
        uid,
        processor,
        _arrow(df.schema, zone, f"{what}: the DataFrame"),
        names,
        _arrow(output, zone, f"{what}: output_schema"),
        event_time,
        report,
    )
    mark = f"{uid}/{next(_numbers)}"
    marked = StructType.fromJson(output.jsonValue())
    for column in marked:
        column.metadata = {**column.metadata, _MARK: mark}
    grouped = df.groupBy(*(_quoted(name) for name in names))
    rows = grouped.transformWithState(operator, marked, "append", time_mode)
    _declared[mark] = DeclaredKeyed(uid, rows, bool(event_time), zone, report)
    return rows.select(
        *(F.col(_quoted(c.name)).alias(c.name, metadata=dict(c.metadata)) for c in output)
    )


def _require_protobuf(what: str) -> None:
    """Raise where PySpark's clients of the state cannot be loaded, as its workers
    would find in the first epoch."""
    try:
        importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
    except Exception as error:  # protobuf's own for another version is no ImportError
        raise MissingDependencyError(
            f"{what}: Spark's transformWithState needs protobuf on driver and executors ({error}): "
            "pip install 'protobuf>=6.33.5,<8'"
        ) from None


def _keys(df: DataFrame, keys: Any, what: str) -> list[str]:
    names = [keys] if isinstance(keys, str) else list(keys) if isinstance(keys, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{what}: keys is {keys!r}; give the names of one column or more")
    if missing := [name for name in names if name not in df.columns]:
        raise ConfigurationError(
            f"{what}: keys has {missing[0]!r}, which is no column; the columns are "
            + ", ".join(map(repr, df.columns))
        )
    if len({*names}) < len(names) or len({*df.columns}) < len(df.columns):
        raise ConfigurationError(f"{what}: a column comes twice; give each a name of its own")
    for name in names:
        if _NO_KEY.search((kind := df.schema[name].dataType).json()):
            raise ConfigurationError(
                f"{what}: key {name!r} is {kind.simpleString()}, and Spark takes no array, map or "
                f"variant in a key to a task's Python; make a text of it before, to_json({name})"
            )
    return names


def _require_function(processor: Any, what: str) -> None:
    if not isinstance(processor, KeyedProcessFunction):
        name = processor.__name__ if isinstance(processor, type) else type(processor).__name__
        hint = f"; give an object, {name}()" if isinstance(processor, type) else ""
        raise ConfigurationError(
            f"{what}: processor is {name}, found no object of a class derived from "
            f"sm.KeyedProcessFunction{hint}"
        )
    try:
        CloudPickleSerializer().dumps(processor)
    except Exception as error:
        raise ConfigurationError(
            f"{what}: {type(processor).__name__} cannot be pickled, and tasks get it so: {error}. "
            "Open connections and files in its method `open`"
        ) from error


def _event_time(df: DataFrame, what: str) -> str:
    """Return the name of the column that has the watermark."""
    marked = [column for column in df.schema if _DELAY in column.metadata]
    if len(marked) != 1 or not isinstance(marked[0].dataType, TimestampType):
        columns = ", ".join(f"{c.name} {c.dataType.simpleString()}" for c in marked) or "none"
        raise ConfigurationError(
            f'{what}: time_mode is "EventTime", which needs one TIMESTAMP column with a watermark '
            f"in the DataFrame; found {columns}. Call df.withWatermark(column, delay) before"
        )
    return str(marked[0].name)


def _output(df: DataFrame, schema: Any, what: str) -> StructType:
    try:
        if not isinstance(schema, StructType):
            schema = df.sparkSession.createDataFrame([], schema).schema
    except (PySparkException, TypeError, ValueError, AssertionError) as error:
        raise ConfigurationError(
            f"{what}: output_schema is {schema!r}; give DDL text such as "
            f"'user STRING, total LONG', or a StructType ({str(error).splitlines()[0]})"
        ) from None
    if not schema.names or len({*schema.names}) < len(schema.names):
        raise ConfigurationError(
            f"{what}: output_schema has the columns {schema.names}; give one at least, and each a "
            "name of its own"
        )
    return schema


def _arrow(schema: StructType, zone: str, what: str) -> Any:
    try:
        return arrow_schema(schema, zone)
    except PySparkException as error:
        raise ConfigurationError(
            f"{what} has a column that Arrow cannot hold ({error}); leave it out, with df.select"
        ) from None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- in a job


def _marks(plan: Any) -> Iterator[str]:
    """Yield the marks of the keyed operators in an analysed plan."""
    for node in nodes(plan, "TransformWithState"):
        metadata = next(items(node.output())).metadata()
        if metadata.contains(_MARK):
            yield str(metadata.getString(_MARK))


def claim_keyed(declared: JobDeclaration) -> list[DeclaredKeyed]:
    """Return the keyed operators of a job's sinks, and give the declaration their uids. Called
    when the job's plan is made. Raises ConfigurationError if another part has such a uid."""
    if not _declared:
        return []
    sinks = [sink for sink in declared.sinks.values() if not sink.dead_letters_of]
    marks = dict.fromkeys(mark for sink in sinks for mark in _marks(analysed(sink.dataframe)))
    keyed = [_declared[mark] for mark in marks if mark in _declared]
    for one in keyed:
        if declared.operators.get(one.uid) is not one.dataframe:
            declared.claim_uid(one.uid, "a keyed_process")
            declared.operators[one.uid] = one.dataframe
            name_part(one.dataframe, declared.key, one.uid, source=False)
    return keyed


def check_keyed(
    declared: JobDeclaration, keyed: Sequence[DeclaredKeyed], conf: Callable[[str], str | None]
) -> None:
    """Raise ConfigurationError if the job's keyed operators cannot run as they are configured.
    `conf` returns Spark's settings for the query. Called before a run writes anything."""
    for one in keyed:
        what = f"Job {declared.name!r}: keyed_process {one.uid!r}"
        if (backend := backend_of(str(conf(PROVIDER)))) != StateBackend.ROCKSDB.value:
            raise ConfigurationError(
                f"{what} needs CheckpointConfig(state_backend='rocksdb'), found {backend!r}; Spark "
                "keeps its kind of state in RocksDB alone"
            )
        zone = conf(_ZONE) or str(one.dataframe.sparkSession.conf.get(_ZONE))  # or Java's own
        if zone != one.zone:
            raise ConfigurationError(
                f"{what} was made when {_ZONE} was {one.zone!r}, and it is {zone!r} now: rows that "
                "wait would come with timestamps in another zone than rows that do not. Set it "
                "before keyed_process"
            )
        if declared.bounded and not one.event_time:
            raise ConfigurationError(
                f'{what}: time_mode is "ProcessingTime" and the sources end: Spark would run '
                "epochs for its timers for ever, and the job never end. Give "
                'time_mode="EventTime", or sources without an end'
            )
        cluster = not is_local(one.dataframe.sparkSession.sparkContext.master)
        if declared.checkpoint.unaligned and cluster and conf(FORMAT) != "2":
            raise ConfigurationError(
                f"{what}: unaligned=True on a cluster needs {FORMAT}=2, found 1, in the Spark "
                "session or in the checkpoint: two attempts of a task may end their epoch at "
                "different rows, and only format 2 keeps the state of the attempt that counts. "
                "Leave the setting out; for a checkpoint of an older job, restore a canonical "
                "savepoint of it"
            )
