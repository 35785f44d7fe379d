"""The Spark session of a job: the caller's, or a new one with Seamark's settings."""

import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.version import __version__ as spark_version

from seamark.api.config import CheckpointConfig
from seamark.model import failpoints
from seamark.model.errors import ConfigurationError, MissingDependencyError, PreflightError
from seamark.spark import class_archive, jars, worker_daemon
from seamark.spark.connect import require_classic
from seamark.spark.spark_versions import HAS_READ_LIMITS, named_here
from seamark.spark.state_backend import PARTITIONS, session_setting

log = logging.getLogger(__name__)
_adding = threading.Lock()

PYTHON_ANSWERS_S = 120.0
"""How long the Python of Spark's tasks may take to say what it is."""

DEFAULT_MASTER = "local[*]"
"""Spark's master if nothing sets one."""

LOCAL_MASTER = "local[*,4]"
"""Seamark's master instead: also all cores, but a failing task is tried four times, as on a
cluster. With plain ``local[*]`` one failing task fails its query."""

_KAFKA_SOURCE_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_AVRO_CLASS = "org.apache.spark.sql.avro.CatalystDataToAvro"
_OWN_FORMATS = {"seamark-datagen": "DatagenSource", "seamark-socket": "SocketSource"}
_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_OUTPUT_LIMIT = "spark.sql.execution.arrow.maxRecordsPerOutputBatch"
RETAINED = "spark.sql.streaming.minBatchesToRetain"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_RENAMING_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SILENT_FILE_MANAGER = ".AbortableStreamBasedCheckpointFileManager"


def spark_session(name: str, frame: DataFrame | None = None) -> SparkSession:
    """Return the session of `frame`; without a frame the active session, the program's first one,
    or a new one, local unless spark-submit says otherwise. This thread's active session may not be
    the frame's, and settings made there would not reach the query of the DataFrame."""
    spark = _active_session() if frame is None else frame.sparkSession
    # Not through a builder: it would give the settings of a new session to the one that is there.
    if spark is None and (first := SparkSession._instantiatedSession) and first._sc._jsc:
        spark = first
    if spark is None:
        spark = _make_session(name)
    require_classic(spark, f"job {name}")
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    if pid not in failpoints.companions:
        failpoints.companions.append(pid)
    return spark


def _active_session() -> SparkSession | None:
    spark = SparkSession.getActiveSession()
    if not isinstance(spark, SparkSession):
        return spark  # of Spark Connect, or none
    # Python keeps one for all threads: the clone of an epoch, if a function of foreachBatch has
    # made a DataFrame. The JVM knows this thread's.
    active = spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().get()
    for known in (spark, SparkSession._instantiatedSession):
        if known is not None and known._jsparkSession.equals(active):
            return known
    return SparkSession(spark._sc, active)


def require_stream(dataframe: Any, where: str) -> None:
    """Raise ConfigurationError, naming the entrance `where`, for what is no streaming DataFrame."""
    require_classic(dataframe, where)
    if not isinstance(dataframe, DataFrame) or not dataframe.isStreaming:
        static = isinstance(dataframe, DataFrame)
        found = "one that is not streaming" if static else type(dataframe).__name__
        raise ConfigurationError(
            f"{where}: give a streaming DataFrame, found {found}; spark.readStream reads one"
        )


def _make_session(name: str) -> SparkSession:
    # Spark's stream thread overflows a small stack when a query is stopped. Only a JVM started here
    # can get a larger one; under spark-submit it runs already.
    gateway = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", "-Xss16m")
    gateway.set("spark.ui.showConsoleProgress", "false")  # spark-submit's default is true
    if SparkContext._jvm is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        jars.find_java()
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        for name, value in class_archive.variables().items():
            os.environ.setdefault(name, value)
    SparkContext._ensure_initialized(conf=gateway)
    # Only now does a SparkConf hold the settings of spark-submit and spark-defaults.conf.
    conf = SparkConf()
    master = conf.get("spark.master", DEFAULT_MASTER)
    defaults = {
        "spark.app.name": name,
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.python.unix.domain.socket.enabled": "true",  # cheaper than TCP to the workers
        "spark.sql.streaming.stopTimeout": "20s",
    }
    if master == DEFAULT_MASTER:
        conf.set("spark.master", LOCAL_MASTER)
    if is_local(master):
        # On a cluster these are the cluster's: its Python has a path of its own.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        defaults["spark.driver.host"] = "127.0.0.1"
        defaults[PARTITIONS] = str(os.cpu_count() or 1)
        defaults["spark.ui.enabled"] = "false"
        # Else a task finds the modules beside the program only if it was started there. Under
        # `python -m` they are not on the program's own path, where queue.py would hide Python's.
        if program := getattr(sys.modules["__main__"], "__file__", None):
            beside = Path(program).resolve().parent
            if beside in (Path(entry).resolve() for entry in sys.path):
                defaults["spark.executorEnv.PYTHONPATH"] = str(beside)
        if "PYSPARK_GATEWAY_PORT" not in os.environ and not conf.get("spark.submit.pyFiles", ""):
            # A package from spark-submit or pyFiles is not there yet when the daemon starts.
            defaults["spark.python.daemon.module"] = worker_daemon.__name__
    for key, value in defaults.items():
        conf.setIfMissing(key, value)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    if not conf.contains("spark.log.level"):
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def is_local(master: str) -> bool:
    """Tell whether tasks run in the driver's JVM, where no task is lost without its driver."""
    return master == "local" or master.startswith("local[")


def require_tasks_python(spark: SparkSession) -> None:
    """Raise ConfigurationError if Spark on this machine runs its tasks with another Python that
    cannot run them: without PYSPARK_PYTHON that is ``python3``, whatever runs the program. On a
    cluster only the tasks can tell."""
    context = spark.sparkContext
    python = shutil.which(context.pythonExec)
    if not is_local(context.master) or python is None or Path(python) == Path(sys.executable):
        return
    asked = "import sys, pyarrow; print(*sys.version_info[:2], sep='.')"
    version, reason = ".".join(map(str, sys.version_info[:2])), ""
    try:
        told = subprocess.run(
            [python, "-c", asked],
            capture_output=True, text=True, check=False, timeout=PYTHON_ANSWERS_S,
        )  # fmt: skip
        if told.returncode or told.stdout.strip() != version:
            reason = (told.stderr.strip() or f"it is Python {told.stdout.strip()}").splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        raise ConfigurationError(
            f"Spark's tasks run {python}, which is not the program's Python {version} with its "
            f"packages: {reason}. Set PYSPARK_PYTHON={sys.executable} in the environment before "
            "the program starts, or make no session: a job makes one that has it"
        )


def require_rows_once(spark: SparkSession) -> None:
    """Raise ConfigurationError if Spark would give the rows of Python functions twice, as 4.2 does
    with a limit on their batches. Asks it by a query of its own, where there is a limit."""
    import pyarrow as pa

    limit = int(spark.conf.get(_OUTPUT_LIMIT, "0") or "0")

    def rows(_: Any) -> Any:
        yield pa.RecordBatch.from_arrays([pa.array(range(limit + 1))], ["id"])

    if limit > 0 and spark.range(0, 1, 1, 1).mapInArrow(rows, "id LONG").count() != limit + 1:
        raise ConfigurationError(
            f"{_OUTPUT_LIMIT} is {limit}, with which this version of Spark doubles rows of Python "
            "functions in larger batches; unset it"
        )


def planned_tasks(
    spark: SparkSession, settings: Mapping[str, str] = MappingProxyType({}), *, stateful: bool
) -> int:
    """Return the number of tasks that write an epoch of a query with these `settings`; 0, not
    known, without state: then the source's partitions decide."""
    given = settings.get(PARTITIONS)
    return int(given or str(session_setting(spark, PARTITIONS))) if stateful else 0


def require_format(spark: SparkSession, format_: str) -> None:
    """Add the session's missing jars or data source for `format_`. Raises MissingDependencyError if
    this fails."""
    if format_ == "kafka":
        connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
        # With the version: spark-submit's PySpark is a zip file, and jars.py does not look into it.
        fetch = partial(jars.spark_kafka_jars, spark_version)
        _require_class(spark, _KAFKA_SOURCE_CLASS, connector, fetch)
    elif format_ == "avro":
        module = f"org.apache.spark:spark-avro_2.13:{spark_version}"
        _require_class(spark, _AVRO_CLASS, module, partial(jars.spark_avro_jars, spark_version))
    elif format_ in _OWN_FORMATS:
        if not HAS_READ_LIMITS:
            raise MissingDependencyError(
                f"{_OWN_FORMATS[format_]} needs Spark 4.2 or later, and this is Spark "
                f"{spark_version}, which does not tell a data source in Python where an epoch "
                "begins; read from Kafka or files, or upgrade (docs/spark-versions.md)"
            )
        from seamark.spark import datagen, socket_lines

        (datagen if format_ == datagen.FORMAT else socket_lines).register(spark)


def require_storage(spark: SparkSession, uri: str) -> None:
    """Make sure the session can reach the file system of `uri`. Raises MissingDependencyError."""
    if uri.startswith("s3a:"):
        connector = f"org.apache.hadoop:hadoop-aws:{jars.hadoop_version()}"
        _require_class(spark, _S3A_CLASS, connector, jars.s3a_jars)


def _require_class(
    spark: SparkSession, name: str, artifact: str, fetch: Callable[[], Sequence[Path]]
) -> None:
    """Add jars to a running Spark if it lacks a class: to the driver's class loader, and by Spark's
    own distribution to the executors'. `spark.jars` would do the same, but only for a JVM not
    started yet; under spark-submit the JVM runs already."""
    with _adding:  # with half of the jars added, the class is found but its dependencies are not
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            loader.loadClass(name)
            return
        except Py4JError:
            log.debug("this Spark session lacks %s", artifact)
        try:
            # Spark has most of them. Each executor would copy these again before its first task.
            has = spark._jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
            names = {Path(path).name for path in has}
            for path in (str(path) for path in fetch() if path.name not in names):
                loader.addURL(spark._jvm.java.io.File(path).toURI().toURL())
                spark.sparkContext._jsc.addJar(path)
            loader.loadClass(name)
        except (MissingDependencyError, Py4JError) as error:
            raise MissingDependencyError(
                f"this Spark session lacks {artifact}, and it could not be added ({error}); start "
                f"the program with: spark-submit --packages {artifact} app.py"
            ) from error


def file_manager_settings(spark: SparkSession, uri: str, *, stateful: bool) -> dict[str, str]:
    """Return the Spark settings for a query to write its checkpoint files in the fastest safe way.

    Without state, by plain rename where rename is atomic: it saves some 50 ms an epoch on local
    disks and HDFS. With state the query keeps Spark's own file manager: the renaming one leaves an
    existing file as it is, so an epoch that runs again would go on from the state of its dead
    attempt. The setting stays as it is on object stores, where a rename is a copy, and if the user
    has set it. Logs a warning if the user chose an unsafe file manager. Raises PreflightError if
    Spark would take the renaming one for a query with state, for want of a setting.
    """
    scheme = uri.split(":", 1)[0]
    chosen = session_setting(spark, _FILE_MANAGER, None)
    renaming = named_here(spark._jvm, _RENAMING_FILE_MANAGER)
    if (chosen or "").endswith(_SILENT_FILE_MANAGER):
        log.warning(
            "%s is %s, which only logs a write that has failed: Spark can go on without a decision "
            "that it believes to be stored, and the next start then stops with "
            "DecisionMissingError; leave the setting out",
            _FILE_MANAGER, chosen,
        )  # fmt: skip
    if stateful and chosen == renaming:
        log.warning(
            "%s is %s, which keeps the state of a dead attempt when its epoch runs again: if the "
            "second run computes other values, state and sinks differ; leave the setting out",
            _FILE_MANAGER, chosen,
        )  # fmt: skip
    if stateful and chosen is None and scheme not in ("file", "hdfs", "s3a"):
        needed = f"fs.AbstractFileSystem.{scheme}.impl"
        if not spark._jsparkSession.sessionState().newHadoopConf().get(needed):
            raise PreflightError(
                f"Spark checkpoint location {uri}: {needed} is not set, so Spark would write state "
                "by a rename that keeps the state of a dead attempt when its epoch runs again; "
                f"set spark.hadoop.{needed} to the connector's class (docs/operations/storage.md)"
            )
    if chosen is None and not stateful and scheme in ("file", "hdfs"):
        return {_FILE_MANAGER: renaming}
    return {}


def query_settings(config: CheckpointConfig, given: Container[str]) -> dict[str, str]:
    """Return the Spark settings for a query to keep as many checkpoints, and to end, as `config`
    says. A setting not among those `given` is left to the session."""
    settings = {}
    if "num_retained" in given:
        # A restart needs the last two: the planned epoch, and the epoch decided before it.
        settings[RETAINED] = str(max(config.num_retained, 2))
    if "checkpoints_after_tasks_finish" in given:
        final = str(config.checkpoints_after_tasks_finish).lower()
        settings["spark.sql.streaming.noDataMicroBatches.enabled"] = final
    return settings


def spark_schema(dataframe: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, simpleString of the type) of each column."""
    return tuple((f.name, f.dataType.simpleString()) for f in dataframe.schema.fields)
