"""Spark's classes as a class-data-sharing archive (JEP 350), made by `make` before tests.

Tests start hundreds of short-lived Spark JVMs, and each spends half its time loading the same
classes. `python -m tests.class_archive` runs a small job, and its JVM writes down the loaded
classes; with `JAVA_OPTIONS` a later one maps that file. Without such a file, or with another class
path, a JVM loads its classes as ever. Before each Spark JVM a small one makes its command line: it
has an archive of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=160m"
"""Half of these JVMs' lives would go to the optimising compiler, and half a second to a full
collection, once classes have filled the small first heap."""
JAVA_OPTIONS = f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"
LAUNCHER = Path(sys.prefix) / "spark-launcher.jsa"
LAUNCHER_OPTIONS = f"-XX:SharedArchiveFile={LAUNCHER}"
"""For Spark's scripts; they win over `JAVA_OPTIONS`. The launcher would map Spark's archive, find
another class path, and load its classes without any: three times the CPU."""
PATIENCE_S = 180.0
"""For the job's first epochs, and for the JVM to write."""

PROGRAM = """
import os, sys, threading, time
import psutil
from pyspark.sql import functions as F
import seamark as sm
from seamark.runtime.session import spark_session

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
    (jvm,) = (p for p in psutil.Process().children() if p.name() == "java")
    jvm.terminate()
    jvm.wait(patience_s)
    os._exit(0)


threading.Thread(target=end, args=[float(sys.argv[1])], daemon=True).start()
job.run()
"""


def make() -> None:
    """Write the archives. Where this Java cannot, say so: tests pass without them, but slower."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "app.py").write_text(PROGRAM)
        written = {archive: Path(directory) / archive.name for archive in (ARCHIVE, LAUNCHER)}
        to_write = "-XX:ArchiveClassesAtExit={}".format
        options = f"{SHORT_LIVED} {to_write(written[ARCHIVE])} -Xlog:disable -Xlog:all=error"
        done = subprocess.run(
            [sys.executable, "app.py", str(PATIENCE_S)],
            env={
                **os.environ,
                "JAVA_TOOL_OPTIONS": options,
                "SPARK_LAUNCHER_OPTS": to_write(written[LAUNCHER]),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_S,
            check=False,
        )
        for archive, new in written.items():
            if new.exists():
                partial = archive.with_suffix(f".{os.getpid()}")
                partial.write_bytes(new.read_bytes())
                partial.replace(archive)
            else:
                print(f"no {archive.name}; tests are slower:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    make()
