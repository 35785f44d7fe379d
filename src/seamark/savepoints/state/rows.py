"""Reads and writes the rows of state stores in Spark's tasks.

The tasks run ``spark/java/StateRows.java``; a jar has it (`spark/java/compiled.py`).

Spark's own ``statestore`` source is not used. Its option for all column families with their raw
rows (``_readAllColumnFamilies``) refuses the hashmap backend, and so does its writer. Without that
option it leaves out the internal families (timers, TTL) and loses each row's partition.
"""

import contextlib
import logging
import os
import re
import threading
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from seamark.files import in_threads
from seamark.savepoints.record import Store
from seamark.spark.java.compiled import class_loader, classes_jar
from seamark.spark.java_calls import items_of, java_class, java_list
from seamark.spark.session import is_local
from seamark.spark.spark_versions import repartition_by_id
from seamark.spark.state_backend import clone_session

log = logging.getLogger(__name__)

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

_OF_PATTERNS = re.compile(r"[\[\]{}*?\\]")
"""What makes a path a pattern to Spark: ``[prod]`` names other files."""
NICENESS = 5
"""The niceness of threads beside a stream. With a much higher one all of the JVM's threads would
wait long for such a thread to reach a safepoint."""

_lock = threading.Lock()
_known: "dict[str, StateClasses]" = {}


class StateClasses:
    """The nested classes of our Java files, in this driver and on its executors."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        jar = classes_jar(spark)
        with zipfile.ZipFile(jar) as archive:
            names = [n.removesuffix(".class").replace("/", ".") for n in archive.namelist()]
        self._names = {name.rpartition("$")[2]: name for name in names}
        spark.sparkContext._jsc.addJar(str(jar))  # the driver serves it to executors
        # `spark.streams` starts the endpoint for the reports of every RocksDB store.
        _ = spark.streams.active
        self._constructors: dict[str, Any] = {}
        self._object = java_class(jvm, "java.lang.Object")
        self._gateway: Any = spark.sparkContext._gateway
        self._loader = class_loader(jvm, jar)

    @staticmethod
    def of(spark: SparkSession) -> "StateClasses":
        """Return the classes for this session's Spark context."""
        with _lock:
            application = spark.sparkContext.applicationId
            if application not in _known:
                _known[application] = StateClasses(spark)
            return _known[application]

    def new(self, name: str, *arguments: Any) -> Any:
        """Make an object of the nested class `name`."""
        if (constructor := self._constructors.get(name)) is None:
            constructor = self._loader.loadClass(self._names[name]).getConstructors()[0]
            self._constructors[name] = constructor
        values = self._gateway.new_array(self._object, len(arguments))
        for index, value in enumerate(arguments):
            values[index] = value
        return constructor.newInstance(values)

    def call_aside(self, function: Any, items: Any) -> list[Any]:
        """Call a function of Spark's tasks on a thread of the driver's JVM, with a lower priority
        than the tasks of a running stream; return its rows. `items` is a Java iterator. For a local
        master. An exception of the function is raised as Py4JJavaError."""
        thread = self.new("seamark.Aside", function, items)
        thread.start()
        if number := thread.number():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, number, NICENESS)
        return items_of(thread.rows())


@dataclass(frozen=True)
class StateVersion:
    """One version of a store, in all its partitions, to be written into `directory` (a URI)."""

    store: Any
    partitions: int
    version: int
    ids: Sequence[str] | None
    """The unique id of each partition's version in Spark's checkpoint format 2."""
    directory: str


@dataclass(frozen=True)
class RowFile:
    """A file of rows: its name in its intended directory, bytes and CRC-32; and by column family
    number, its rows and the bytes of their keys and values."""

    name: str
    size: int
    crc32: int
    rows: tuple[int, ...]
    state_bytes: tuple[int, ...]


def export_rows(
    spark: SparkSession,
    versions: Sequence[StateVersion],
    run_id: str = "",
    *,
    aside: bool,
    few: bool,
) -> list[list[RowFile]]:
    """Write the rows of every store into files; return the files of each. `aside`: a stream goes on
    meanwhile. `few`: use only a quarter of the cores.

    On a cluster the export is one Spark job. In the driver's own JVM (a local master) it uses
    threads beside Spark's: a task would hold one of the stream's cores to its end, and make each of
    its epochs wait for another turn. There, it also takes versions still in the memory of the
    query's run `run_id`, instead of reading their files again. A retried task may leave other files
    behind; they are not the savepoint's.
    """
    jvm: Any = spark._jvm
    classes = StateClasses.of(spark)
    sources = []
    for v in versions:
        ids = None if v.ids is None else java_list(jvm, v.ids)
        version = java_class(jvm, "java.lang.Long")(v.version)
        sources.append(classes.new("Source", v.store, v.partitions, version, ids, v.directory))
    export = classes.new("Export", java_list(jvm, sources))
    count = sum(v.partitions for v in versions)
    context = spark.sparkContext
    tasks = max(1, min(count, context.defaultParallelism // (4 if few else 1)))
    rows: list[Any]
    if is_local(context.master):
        if run_id:
            _keep_in_memory(sources, run_id)
        shares = [java_list(jvm, range(number, count, tasks)) for number in range(tasks)]

        def write(share: Any) -> list[Any]:
            if aside:
                return classes.call_aside(export, share.iterator())
            return items_of(export.files(share.iterator()))

        rows = [row for part in in_threads(write, shares, tasks) for row in part]
    else:
        numbers = context._jsc.parallelize(java_list(jvm, range(count)), tasks)
        rows = items_of(numbers.mapPartitions(export).collect())
    return _row_files(rows, len(versions))


def _keep_in_memory(sources: Sequence[Any], run_id: str) -> None:
    try:
        kept = sum(source.keep(run_id) for source in sources)
        log.debug("of %d state stores the rows are in memory", kept)
    except Py4JError as error:  # with other classes of Spark, the files are read
        log.debug("the state stores in memory cannot be looked at: %s", error)


def write_files(rows: DataFrame, families: Sequence[str], directory: str) -> list[RowFile]:
    """Write `rows` (`ROW`) of a store with these column families into files of the directory."""
    spark = rows.sparkSession
    write = StateClasses.of(spark).new(
        "WriteFile", directory, java_list(spark._jvm, families), hadoop_of(spark)
    )
    input_ = rows._jdf.queryExecution().toRdd().toJavaRDD()
    return _row_files(items_of(input_.mapPartitions(write).collect()), 1)[0]


def _row_files(rows: Iterable[Any], stores: int) -> list[list[RowFile]]:
    by_store: list[list[RowFile]] = [[] for _ in range(stores)]
    for row in rows:
        by_store[row.getInt(0)].append(
            RowFile(
                row.getString(1),
                row.getLong(2),
                row.getLong(3),
                tuple(items_of(row.getAs(4))),
                tuple(items_of(row.getAs(5))),
            )
        )
    return by_store


def with_files(
    store: Store, written: Sequence[RowFile], files: dict[str, tuple[int, int]]
) -> Store:
    """Return the store with the figures of the written files, and list the files in `files`, as in
    `SavepointRecord.files`."""
    files |= {f"{store.path}/{file.name}": (file.size, file.crc32) for file in written}
    families = tuple(
        replace(
            family,
            rows=sum(file.rows[number] for file in written),
            bytes=sum(file.state_bytes[number] for file in written),
        )
        for number, family in enumerate(store.families)
    )
    return replace(store, families=families)


def read_rows(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the rows (`ROW`) of files, by their URIs."""
    if paths:
        return spark.read.schema(ROW).parquet(
            *(_OF_PATTERNS.sub(r"\\\g<0>", path) for path in paths)
        )
    # `createDataFrame` would make this session the active one, and it may be a clone.
    return _state_rows(spark, spark.sparkContext._jsc.emptyRDD())


def hadoop_of(spark: SparkSession) -> Any:
    """Return the session's settings of file systems, for tasks."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return java_class(spark._jvm, "org.apache.spark.util.SerializableConfiguration")(conf)


def _state_rows(spark: SparkSession, rows: Any) -> DataFrame:
    """Return Java's RDD of Spark's internal rows as a DataFrame of `ROW`, without a conversion of
    each row, as Spark's own readers do."""
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
    """Write `rows` (None: no rows) as `version` of a store with `partitions` partitions; return the
    number of rows, and the unique ids of the partitions' versions in Spark's format 2 ("" in format
    1). `ordered`: some key has several values, to be kept in the order of ``sequence``. A version
    left by a call that died is overwritten."""
    jvm: Any = spark._jvm
    if rows is None:
        input_ = spark.sparkContext._jsc.parallelize(java_list(jvm, ()), partitions)
    else:
        spread = repartition_by_id(rows, partitions, f"pmod(key_hash, {partitions})")
        if ordered:
            spread = spread.sortWithinPartitions("column_family", "sequence")
        input_ = spread._jdf.queryExecution().toRdd().toJavaRDD()
    write = StateClasses.of(spark).new("Write", store, java_class(jvm, "java.lang.Long")(version))
    done = {row.getInt(0): row for row in items_of(input_.mapPartitions(write).collect())}
    return (
        sum(row.getLong(1) for row in done.values()),
        [done[partition].getString(2) or "" for partition in range(partitions)],
    )


def writing_session(spark: SparkSession) -> SparkSession:
    """Return a session like `spark`, with shuffles into exactly the requested partitions: adaptive
    execution would leave out empty ones."""
    clone = SparkSession(spark.sparkContext, clone_session(spark))
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
    """Return the rows (`ROW`) of one column family from columns `key`, `value` and, if keys have
    several values, `sequence`."""
    spark = state.sparkSession
    sequence = F.col("sequence") if "sequence" in state.columns else F.lit(None).cast("long")
    encode = StateClasses.of(spark).new("Encode", store, family)
    rows = state.select("key", "value", sequence)._jdf.javaRDD().mapPartitions(encode)
    return _state_rows(spark, rows)
