"""What differs between the versions of Spark: the one module that knows it.

Everything else is written for the newest Spark. This module asks the Spark at hand what it has, by
its classes and functions, never by its version number. docs/spark-versions.md is for users.
"""

import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.types import StructType

from seamark.spark.java_calls import java_class

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
    """Whether Spark tells a data source in Python an epoch's start, and a limit of its rows."""
except ModuleNotFoundError:
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object
    HAS_READ_LIMITS = False

_KAFKA_STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
_SEED = 42
"""Of the hash by which Spark spreads rows."""
_HASH = "Murmur3Hash"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_MOVED = re.compile(
    rf"({re.escape(_STREAMING)})\.(?:runtime|checkpointing|operators\.stateful(?:\.[a-z]+)*)\."
)
_UTILITIES = f"{_STREAMING}.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils"
_READERS = "org.apache.spark.sql.execution.datasources.v2.state.StatePartitionReaderUtils"
_OWNED = re.compile(r"\$(?:ttl|min|count|rowCounter)_(.*)", re.DOTALL)


@functools.cache
def has_class(jvm: Any, name: str) -> bool:
    """Tell whether the driver's JVM has a class of this full name."""
    loader = java_class(jvm, "java.lang.ClassLoader").getSystemClassLoader()
    try:
        loader.loadClass(name)
    except Py4JError:
        return False
    return True


def named_here(jvm: Any, text: str) -> str:
    """Return a class name, or Java source, with the names that this Spark has for its classes."""
    if not has_class(jvm, f"{_EXPRESSIONS}.CollationAware{_HASH}"):  # Spark 4.0.0
        text = text.replace(f"CollationAware{_HASH}", _HASH)
    # In older ones all classes of the streaming engine are in one package.
    by_subject = has_class(jvm, f"{_STREAMING}.runtime.MicroBatchExecution")
    return text if by_subject else _MOVED.sub(r"\1.", text)


def spark_class(jvm: Any, name: str) -> Any:
    """Return one of Spark's classes, by its full name in the newest Spark."""
    return java_class(jvm, named_here(jvm, name))


def has_key_extractors(jvm: Any) -> bool:
    """Tell whether Spark itself says which columns of a state key decide on the key's partition."""
    return has_class(jvm, f"{_STREAMING}.operators.stateful.StatePartitionKeyExtractorFactory")


def has_real_time_mode() -> bool:
    """Tell whether PySpark can start Real-time Mode; in Spark 4.1 Scala alone can."""
    return "realTime" in inspect.signature(DataStreamWriter.trigger).parameters


def has_zoned_arrow() -> bool:
    """Tell whether PySpark makes Arrow schemas in a given time zone, which rows kept for a later
    epoch need."""
    return "timezone" in inspect.signature(to_arrow_schema).parameters


def arrow_schema(schema: StructType, zone: str) -> pa.Schema:
    """Return the Arrow schema of Spark's columns, timestamps in this time zone; in UTC before Spark
    4.2, the same moments."""
    zoned = {"timezone": zone} if has_zoned_arrow() else {}
    return to_arrow_schema(schema, **zoned)


def mend_kafka_sources(stream: Any) -> None:
    """Keep a restart's first epoch from ending the query. Called in this epoch, with Spark's
    `StreamExecution`.

    A restart runs a planned epoch again before it looks at the topics. At the epoch's end the Kafka
    source of Spark 4.1 reports how far it is behind, and fails, because it has not looked
    (SPARK-55271). Without partitions there is nothing to report.
    """
    maps = JavaClass("scala.collection.immutable.Map$", stream._gateway_client)
    sources = stream.uniqueSources().keysIterator()
    while sources.hasNext():
        source = sources.next()
        with contextlib.suppress(Py4JError):  # that of an unaligned job is wrapped
            source = source.delegate()
        if str(source.getClass().getName()) == _KAFKA_STREAM:
            with contextlib.suppress(Py4JError):  # another connector
                field = source.getClass().getDeclaredField("latestPartitionOffsets")
                field.setAccessible(True)
                if field.get(source) is None:
                    field.set(source, getattr(maps, "MODULE$").empty())


# --- state


def base_of_family(jvm: Any, name: str) -> str:
    """Return the state variable of a column family, by the family's name."""
    if has_key_extractors(jvm):
        return str(java_class(jvm, _UTILITIES).getBaseStateName(name))
    owned = _OWNED.fullmatch(name)
    return owned[1] if owned else name.replace("_timestampToKey", "_keyToTimestamp")


def has_several_values(jvm: Any, family: str, variable: Any) -> bool:
    """Tell whether a key can have several values in a column family; `variable` is its state
    variable, None for a family without one or with an index of one."""
    if has_key_extractors(jvm):
        some = java_class(jvm, "scala.Option").apply
        return bool(java_class(jvm, _READERS).isMultiValuedCF(some(family), some(variable)))
    return variable is not None and str(variable.stateVariableType().toString()) == "ListState"


def schema_checker(spark: SparkSession, provider: Any, hadoop: Any, schemas: Any) -> Any:
    """Return Spark's reader of a store's schema files; `schemas` is a Scala list of their paths."""
    jvm: Any = spark._jvm
    none = java_class(jvm, "scala.Option").empty()
    checker = java_class(jvm, f"{_STREAMING}.state.StateSchemaCompatibilityChecker")
    more = [False] if has_key_extractors(jvm) else []
    with active(spark):  # Spark 4.0 asks the thread, and a savepoint's thread has no session
        return checker(provider, hadoop, schemas, none, *more)


@contextlib.contextmanager
def active(spark: SparkSession, clone: Any = None) -> Iterator[None]:
    """Make `spark`, or Java's `clone` of it, this thread's active session inside the block."""
    sessions = java_class(spark._jvm, "org.apache.spark.sql.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(clone or spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def register_source(spark: SparkSession, source: type) -> None:
    """Register a Python data source. Spark looks for its name in the thread's active session, too:
    another one of the program's that has it would be an error."""
    with active(spark):
        spark.dataSource.register(source)


def writing_settings(jvm: Any) -> dict[str, str]:
    """Return the settings with which a state store writes a version out of nothing as one whole
    file."""
    if has_key_extractors(jvm):
        return {}
    return {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}


def repartition_by_id(rows: DataFrame, partitions: int, number: str) -> DataFrame:
    """Return the rows, each in the partition with its `number`, an SQL expression of type int."""
    if hasattr(DataFrame, "repartitionById"):
        return rows.repartitionById(partitions, F.expr(number))
    # Spark spreads rows by a hash: give it, for each partition, an integer with that hash.
    # Of an instance: py4j finds a static method by chance where another has its name.
    murmur3 = java_class(rows.sparkSession._jvm, "org.apache.spark.unsafe.hash.Murmur3_x86_32")
    hashes = murmur3(_SEED)
    chosen: dict[int, int] = {}
    for integer in itertools.count():
        if len(chosen) == partitions:
            break
        chosen.setdefault(int(hashes.hashInt(integer)) % partitions, integer)
    integers = ", ".join(str(chosen[partition]) for partition in range(partitions))
    return rows.repartition(partitions, F.expr(f"element_at(array({integers}), {number} + 1)"))
