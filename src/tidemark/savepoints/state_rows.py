"""Reads and writes the rows of state stores in Spark's tasks.

What runs in the tasks is `StateRows.java`, and the Java files beside it. Spark's compiler of
generated code, Janino, compiles them in the driver, once for a Spark context, and the executors get
them as a jar.

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
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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

from tidemark.runtime.session import is_local

_SOURCES = ("RowFile.java", "StateRows.java", "StateFiles.java")
"""Each may use what stands before it."""

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
    """The nested classes of our Java files, in this driver and on its executors."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        directory = tempfile.mkdtemp(prefix="tidemark-")
        file = Path(directory) / "tidemark-state-rows.jar"
        self._names: dict[str, str] = {}
        with zipfile.ZipFile(file, "w") as jar:
            for source in _SOURCES:
                compiler = jvm.org.codehaus.janino.SimpleCompiler()
                compiler.setSourceVersion(8)
                compiler.setTargetVersion(8)
                compiler.setParentClassLoader(loader)
                compiler.cook(files(__package__).joinpath(source).read_text())
                for name, code in compiler.getBytecodes().items():
                    jar.writestr(name.replace(".", "/") + ".class", bytes(code))
                    self._names[name.rpartition("$")[2]] = name
                loader = compiler.getClassLoader()
        spark.sparkContext._jsc.addJar(str(file))  # the driver serves it to executors
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        # With its streams Spark starts the endpoint that every RocksDB store reports to.
        _ = spark.streams.active
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._loader = loader

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
        constructor = self._loader.loadClass(self._names[name]).getConstructors()[0]
        values = self._gateway.new_array(self._jvm.java.lang.Object, len(arguments))
        for index, value in enumerate(arguments):
            values[index] = value
        return constructor.newInstance(values)


@dataclass(frozen=True)
class StateVersion:
    """One version of a store, of all its partitions, to be written into `directory` (a URI)."""

    store: Any
    partitions: int
    version: int
    ids: Sequence[str] | None
    """The unique id of each partition's version in Spark's checkpoint format 2."""
    directory: str


@dataclass(frozen=True)
class RowFile:
    """A file of rows: its name in the directory it was to be in, bytes and CRC-32; and by the
    number of their column family, how many rows it has and how many bytes of keys and values."""

    name: str
    size: int
    crc32: int
    rows: tuple[int, ...]
    state_bytes: tuple[int, ...]


def export_rows(spark: SparkSession, versions: Sequence[StateVersion]) -> list[list[RowFile]]:
    """Write the rows of every store into files; return the files of each. Only a quarter of the
    cores does it: the stream goes on meanwhile.

    On a cluster that is one Spark job. In the driver's own JVM (a local master) it takes threads
    beside Spark's: a task would hold one of the stream's cores to its end, and make each of its
    epochs wait for another turn. Of a task that is tried again there may be other files, which are
    not the savepoint's.
    """
    jvm: Any = spark._jvm
    classes = StateClasses.of(spark)
    sources = []
    for v in versions:
        ids = None if v.ids is None else _java_list(jvm, v.ids)
        version = jvm.java.lang.Long(v.version)
        sources.append(classes.new("Source", v.store, v.partitions, version, ids, v.directory))
    export = classes.new("Export", _java_list(jvm, sources))
    count = sum(v.partitions for v in versions)
    context = spark.sparkContext
    tasks = max(1, min(count, context.defaultParallelism // 4))
    rows: list[Any]
    if is_local(context.master):
        shares = [_java_list(jvm, range(number, count, tasks)) for number in range(tasks)]
        with ThreadPoolExecutor(tasks) as pool:
            parts = pool.map(lambda share: list(export.files(share.iterator())), shares)
            rows = [row for part in parts for row in part]
    else:
        numbers = context._jsc.parallelize(_java_list(jvm, range(count)), tasks)
        rows = numbers.mapPartitions(export).collect()
    return _row_files(rows, len(versions))


def write_files(rows: DataFrame, families: Sequence[str], directory: str) -> list[RowFile]:
    """Write `rows` (`ROW`) of a store with these column families into files of the directory (a
    URI)."""
    spark = rows.sparkSession
    write = StateClasses.of(spark).new(
        "WriteFile", directory, _java_list(spark._jvm, families), _hadoop(spark)
    )
    input_ = rows._jdf.queryExecution().toRdd().toJavaRDD()
    return _row_files(input_.mapPartitions(write).collect(), 1)[0]


def _row_files(rows: Iterable[Any], stores: int) -> list[list[RowFile]]:
    found: list[list[RowFile]] = [[] for _ in range(stores)]
    for row in rows:
        found[row.getInt(0)].append(
            RowFile(
                row.getString(1),
                row.getLong(2),
                row.getLong(3),
                tuple(row.getAs(4)),
                tuple(row.getAs(5)),
            )
        )
    return found


def read_rows(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the rows (`ROW`) of files, by their URIs."""
    return spark.read.schema(ROW).parquet(*paths) if paths else spark.createDataFrame([], ROW)


def _hadoop(spark: SparkSession) -> Any:
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.util.SerializableConfiguration(conf)


def _java_list(jvm: Any, items: Iterable[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return found


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
