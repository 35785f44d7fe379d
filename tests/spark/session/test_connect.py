"""Spark Connect is told apart at every entrance, in one sentence: one Connect server for all, in
a process of its own (a process is Connect's or classic for good)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import seamark as sm

spark = SparkSession.builder.remote("local[2]").getOrCreate()
stream = spark.readStream.format("rate").load()
batch = spark.range(3)
marked = stream.withWatermark("timestamp", "1 second")
counted = marked.groupBy(F.window("timestamp", "1 second")).count()
kafka = stream.selectExpr("CAST(value AS BINARY) AS value")
job = sm.Job("connected", sm.CheckpointConfig(storage=sys.argv[1]))

class Nothing(sm.KeyedProcessFunction):
    def process_element(self, row, context):
        yield from ()

entrances = {
    "source `sm`": lambda: job.source(sm.DatagenSource(rows_per_second=1), uid="a"),
    "source `df`": lambda: job.source(stream, uid="b", replayable=True),
    "uid": lambda: job.uid(counted, "c"),
    "sink": lambda: job.sink(counted, sm.SQLiteSink(sys.argv[1] + "/x.db", table="x"), uid="d"),
    "write_stream": lambda: sm.write_stream(stream),
    "write_stream of a batch": lambda: sm.write_stream(batch),
    "write_stream with a sink": lambda: sm.write_stream(stream, sm.SQLiteSink("x", table="x")),
    "process": lambda: sm.process(stream, lambda rows: rows, "value LONG", uid="e"),
    "keyed_process": lambda: sm.keyed_process(
        stream, "value", Nothing(), uid="f", output_schema="value LONG"
    ),
    "debezium": lambda: sm.debezium(kafka, "id LONG", "id"),
    "savepoint": lambda: sm.Savepoint(sys.argv[1]),
    "explain": lambda: job.explain(),
    "restore_plan": lambda: job.restore_plan(sys.argv[1]),
}
said = {}
for name, enter in entrances.items():
    try:
        enter()
        said[name] = None
    except Exception as error:
        said[name] = [type(error).__name__, str(error)]
print(json.dumps(said))
spark.stop()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | None]:
    storage = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(storage)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout, done.stderr[-3000:]
    assert not [path for path in storage.rglob("*") if path.is_file()]
    found: dict[str, list[str] | None] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_entrance_refuses_it_with_the_same_sentence(
    said: dict[str, list[str] | None],
) -> None:
    sentences = set()
    for entrance, answer in said.items():
        assert answer is not None, entrance
        kind, message = answer
        assert kind == "ConfigurationError", (entrance, answer)
        sentences.add(message.partition(": ")[2])
        assert "\n" not in message
    (sentence,) = sentences
    assert sentence.startswith("this is Spark Connect, and Seamark works inside of Spark's driver")
    assert "SC005" in sentence


def test_a_classic_program_in_an_environment_of_connect_is_told_too(tmp_path: Path) -> None:
    """A job without a DataFrame of the user's, where only SPARK_REMOTE says it."""
    program = tmp_path / "app.py"
    program.write_text(
        "import os, seamark as sm\n"
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.getOrCreate()\n"
        f"job = sm.Job('remote', sm.CheckpointConfig(storage={str(tmp_path)!r}))\n"
        "job.source(sm.DatagenSource(rows_per_second=1), uid='a')\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env={"PATH": "/usr/bin:/bin", "SPARK_REMOTE": "local[1]"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-3000:]
    assert "SC005" in done.stderr
    assert "Traceback" not in done.stderr
