"""The Python workers of a session made here import PySpark as installed, compiled, and not out of
Spark's zip file; and what lies beside the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

PROGRAM = """
import beside
import seamark as sm
from pyspark.sql.functions import udf

home = {home!r}
job = sm.Job("loud", sm.CheckpointConfig(storage=home + "/store", interval=0))
lines = job.source(sm.FileSource(home + "/in", "text", ending="latest"), uid="lines")
loud = lines.select(udf(beside.loud)("value").alias("value"))
job.sink(loud, sm.FileSink(home + "/out", "json"), uid="out")
job.run()
"""


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    found = spark.sparkContext.range(2).map(lambda _: sys.modules["pyspark"].__file__)
    assert found.distinct().collect() == [pyspark.__file__]


def test_a_program_started_from_elsewhere_has_its_own_modules_in_tasks(tmp_path: Path) -> None:
    for name in ("app", "in", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/lines.txt").write_text("hear\n")
    (tmp_path / "app/beside.py").write_text("def loud(text):\n    return text.upper()\n")
    app = tmp_path / "app/app.py"
    app.write_text(PROGRAM.format(home=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, app], cwd=tmp_path / "elsewhere", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in tmp_path.glob("out/*.json")] == ['{"value":"HEAR"}\n']
