"""Archives of Spark's classes (class data sharing, JEP 350): a driver that maps them takes a third
less CPU to its first epoch.

`make` runs a small job whose JVM writes down the classes that it has loaded. Java checks an archive
itself: with another Java, or other jars on Spark's class path, it loads the classes as ever. A
connector that is added to a running Spark is in none.

Invariant: a file under its final name is whole.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from seamark.model.errors import MissingDependencyError, SeamarkError, UserError
from seamark.spark import jars

SUBMIT_VARIABLE, LAUNCHER_VARIABLE = "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"
"""Environment: Java's options of the JVM that Spark's scripts start, and of the small one before it
that makes its command line."""
_NAMES = {SUBMIT_VARIABLE: "spark.jsa", LAUNCHER_VARIABLE: "launcher.jsa"}
_TRAINING_S = 180.0
"""For the job's first epochs, and for the JVM to write."""
_PROGRAM = """
import os, sys, threading, time
from pyspark import SparkContext
from pyspark.sql import functions as F
import seamark as sm
from seamark.spark.session import spark_session

class Changes(sm.FileSink):
    output_modes = ("append", "update")

job = sm.Job("classes", sm.CheckpointConfig(storage="checkpoints", interval="200ms"), "update")
spark = spark_session("classes")
rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
rows = job.source(rate, uid="rows", replayable=True)
counts = rows.groupBy((F.col("value") % 10).alias("digit")).count()
job.sink(counts, Changes("out"), uid="counts")


def end(patience_s):
    deadline = time.monotonic() + patience_s
    while job.checkpoints().counts.completed < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    jvm = SparkContext._gateway.proc
    jvm.terminate()
    jvm.wait(patience_s)
    os._exit(0)


threading.Thread(target=end, args=[float(sys.argv[1])], daemon=True).start()
job.run()
"""


def directory() -> Path:
    """Return where the archives for this machine's PySpark are. It may not exist."""
    return jars.cache_directory("class-archives") / f"spark-{jars.spark_version()}"


def variables(place: Path | None = None) -> dict[str, str]:
    """Return the environment in which Spark's scripts use the archives in `place`, by default in
    `directory`: empty without archives."""
    try:
        place = place or directory()
    except MissingDependencyError:  # Spark's own distribution brings PySpark later
        return {}
    return {
        name: f"-XX:SharedArchiveFile={place / file} -Xlog:cds=off -Xlog:cds+dynamic=off"
        for name, file in _NAMES.items()
        if (place / file).exists()
    }


def make(place: Path | None = None) -> None:
    """Write the archives, in half a minute or so. Raises MissingDependencyError without Java or
    PySpark, UserError if nothing can be written there, SeamarkError if this Java writes none."""
    jars.find_java()
    place = place or directory()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as scratch:
            _train(Path(scratch), place)
    except OSError as error:
        raise UserError(
            f"class archives cannot be kept in {place}: {error.strerror or error}; make room, make "
            "it writable for this user, or set XDG_CACHE_HOME to a directory that is"
        ) from error


def _train(scratch: Path, place: Path) -> None:
    (scratch / "app.py").write_text(_PROGRAM)
    written = {name: scratch / file for name, file in _NAMES.items()}
    options = "-XX:ArchiveClassesAtExit={} -Xlog:disable -Xlog:all=error".format
    done = subprocess.run(
        [sys.executable, "app.py", str(_TRAINING_S)],
        env={
            **os.environ,
            **{name: options(file) for name, file in written.items()},
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=3 * _TRAINING_S,
        check=False,
    )
    for file in written.values():
        if not file.exists():
            raise SeamarkError(f"this Java wrote no class archive:\n{done.stderr[-2000:]}")
        with file.open("rb") as archive:
            os.fsync(archive.fileno())  # Java crashes at one that a lost page has cut short
        file.replace(place / file.name)
