"""Reads and writes the rows of state stores, one Spark task for each state partition.

The part that runs in the tasks is `StateRows.java`. Spark's compiler of generated code, Janino,
compiles it in the driver, once for a Spark context, and the executors get it as a jar.

Spark's own ``statestore`` source is not used: what gives all column families with their raw rows
(``_readAllColumnFamilies``) refuses the hashmap backend, and its writer too; and what does not
leaves out the internal families (timers, TTL) and loses which partition a row belongs to.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_PACKAGE = "tidemark.StateRows$"

ROW = StructType(
    [
        StructField("column_family", StringType(), False),
        StructField("key_hash", IntegerType(), False),
        StructField("sequence", LongType(), True),
        StructField("key", BinaryType(), False),
        StructField("value", BinaryType(), False),
    ]
)
"""A state row in a savepoint."""

_lock = threading.Lock()
_known: dict[str, StateClasses] = {}


class StateClasses:
    """The classes of StateRows.java, in this driver and on its executors."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setSourceVersion(8)
        compiler.setTargetVersion(8)
        parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler.setParentClassLoader(parent)
        compiler.cook(files(__package__).joinpath("StateRows.java").read_text())
        directory = tempfile.mkdtemp(prefix="tidemark-")
        file = Path(directory) / "tidemark-state-rows.jar"
        with zipfile.ZipFile(file, "w") as jar:
            for name, code in compiler.getBytecodes().items():
                jar.writestr(name.replace(".", "/") + ".class", bytes(code))
        spark.sparkContext._jsc.addJar(str(file))  # the driver serves it to executors
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        # With its streams Spark starts the endpoint that every RocksDB store reports to.
        _ = spark.streams.active
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._loader = compiler.getClassLoader()

    @staticmethod
    def of(spark: SparkSession) -> StateClasses:
        """Return those of this session's Spark context."""
        with _lock:
            application = spark.sparkContext.applicationId
            if application not in _known:
                _known[application] = StateClasses(spark)
            return _known[application]

    def new(self, name: str, *arguments: Any) -> Any:
        """Make an object of the nested class `name`."""
        constructor = self._loader.loadClass(_PACKAGE + name).getConstructors()[0]
        values = self._gateway.new_array(self._jvm.java.lang.Object, len(arguments))
        for index, value in enumerate(arguments):
            values[index] = value
        return constructor.newInstance(values)


def read_rows(
    spark: SparkSession, store: Any, partitions: int, version: int, ids: list[str] | None
) -> DataFrame:
    """Return the rows (`ROW`) of a store at `version`, lazily; `ids` as in Spark's format 2."""
    jvm: Any = spark._jvm
    java_ids = None
    if ids is not None:
        java_ids = jvm.java.util.ArrayList()
        for id_ in ids:
            java_ids.add(id_)
    numbers = jvm.java.util.ArrayList()
    for partition in range(partitions):
        numbers.add(partition)
    read = StateClasses.of(spark).new("Read", store, jvm.java.lang.Long(version), java_ids)
    rows = spark.sparkContext._jsc.parallelize(numbers, partitions).mapPartitions(read)
    return _state_rows(spark, rows)


def _state_rows(spark: SparkSession, rows: Any) -> DataFrame:
    """Return Java's RDD of Spark's internal rows as a DataFrame of `ROW`: as Spark's own readers
    do, without a conversion of each row."""
    schema = spark._jsparkSession.parseDataType(ROW.json())
    frame = spark._jsparkSession.internalCreateDataFrame(rows.rdd(), schema, False)
    return DataFrame(frame, spark)


def write_rows(
    rows: DataFrame | None,
    store: Any,
    partitions: int,
    version: int,
    *,
    spark: SparkSession,
    ordered: bool,
) -> tuple[int, list[str]]:
    """Write `rows` (None: no rows) as `version` of a store with that many partitions; return how
    many rows there were, and the unique ids of the partitions' versions in Spark's format 2 ("" in
    format 1).

    `ordered`: some key has several values, whose order in ``sequence`` must be kept. A version that
    is there already, of a call that died, is overwritten.
    """
    jvm: Any = spark._jvm
    if rows is None:
        input_ = spark.sparkContext._jsc.parallelize(jvm.java.util.ArrayList(), partitions)
    else:
        spread = rows.repartitionById(partitions, F.expr(f"pmod(key_hash, {partitions})"))
        if ordered:
            spread = spread.sortWithinPartitions("column_family", "sequence")
        input_ = spread._jdf.queryExecution().toRdd().toJavaRDD()
    write = StateClasses.of(spark).new("Write", store, jvm.java.lang.Long(version))
    done = {row.getInt(0): row for row in input_.mapPartitions(write).collect()}
    return (
        sum(row.getLong(1) for row in done.values()),
        [done[partition].getString(2) or "" for partition in range(partitions)],
    )


def writing_session(spark: SparkSession) -> SparkSession:
    """Return a session like `spark` in which a shuffle has as many partitions as it was told:
    adaptive execution would leave out those of a store without rows."""
    clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    clone.conf.set("spark.sql.adaptive.enabled", "false")
    return clone


def file_checksums(
    spark: SparkSession, directory: str, paths: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Return bytes and CRC-32 of files below `directory`; the executors read them through.

    One that the file system itself finds damaged has -1 bytes.
    """
    jvm: Any = spark._jvm
    if not paths:
        return {}
    names = jvm.java.util.ArrayList()
    for path in paths:
        names.add(path)
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    checksum = StateClasses.of(spark).new(
        "Checksum", directory, jvm.org.apache.spark.util.SerializableConfiguration(hadoop)
    )
    rows = spark.sparkContext._jsc.parallelize(names, len(paths)).mapPartitions(checksum).collect()
    return {row.getString(0): (row.getLong(1), row.getLong(2)) for row in rows}


def decode_rows(rows: DataFrame, key: StructType, value: StructType) -> DataFrame:
    """Return rows (`ROW`) of one column family as columns `key`, `value` and `sequence`."""
    spark = rows.sparkSession
    parse = spark._jsparkSession.parseDataType
    decode = StateClasses.of(spark).new("Decode", parse(key.json()), parse(value.json()))
    schema = StructType(
        [
            StructField("key", key),
            StructField("value", value),
            StructField("sequence", LongType()),
        ]
    )
    decoded = rows._jdf.javaRDD().mapPartitions(decode)
    return DataFrame(spark._jsparkSession.createDataFrame(decoded, parse(schema.json())), spark)


def encode_rows(state: DataFrame, store: Any, family: Any) -> DataFrame:
    """Return the rows (`ROW`) of one column family from columns `key`, `value` and, where keys have
    several values, `sequence`."""
    spark = state.sparkSession
    sequence = F.col("sequence") if "sequence" in state.columns else F.lit(None).cast("long")
    encode = StateClasses.of(spark).new("Encode", store, family)
    rows = state.select("key", "value", sequence)._jdf.javaRDD().mapPartitions(encode)
    return _state_rows(spark, rows)
