"""Examples of Spark's own documentation, made exactly-once by one line, and killed three times.

How: the word count is the file that PySpark brings. The windowed count is the code of Spark's
guide, with its columns by name: output mode append wants that of Spark alone too. Only the
statement that starts the query is another one. A producer sends lines while the program is killed
with SIGKILL, in the middle of its epochs. Every running count, or window, must be in the topic
once, and the last ones must be right.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import confluent_kafka
import pyspark
import pytest

from seamark.dev.kafka import LocalKafka
from seamark.spark.jars import spark_kafka_jars
from tests.chaos import workload
from tests.chaos.driver import REPOSITORY, wait_until

WORD_COUNT = (
    Path(pyspark.__file__).parent
    / "examples/src/main/python/sql/streaming/structured_kafka_wordcount.py"
)
STARTED = """    query = wordCounts\\
        .writeStream\\
        .outputMode('complete')\\
        .format('console')\\
        .start()
"""
EXACTLY_ONCE = """    import seamark as sm
    query = sm.write_stream(wordCounts.selectExpr(COLUMNS))\\
        .outputMode(MODE)\\
        .format('kafka')\\
        .option('kafka.bootstrap.servers', bootstrapServers)\\
        .option('topic', TOPIC)\\
        .option('checkpointLocation', CHECKPOINT)\\
        .start()
"""
WINDOWED = """
    # https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html
    from pyspark.sql.functions import window
    words = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrapServers)\\
        .option(subscribeType, topics).option("startingOffsets", "earliest").load()\\
        .selectExpr("timestamp", "explode(split(CAST(value AS STRING), ' ')) AS word")

    # Group the data by window and word and compute the count of each group
    wordCounts = words \\
        .withWatermark("timestamp", "1 second") \\
        .groupBy(
            window("timestamp", "2 seconds", "1 second"),
            "word") \\
        .count()
"""
WORDS = ["cat", "dog", "owl"]
KILLS = 3


class Program:
    """One of the examples as a program of its own, with its topics and its checkpoint."""

    def __init__(self, directory: Path, servers: str, source: str) -> None:
        self.directory, self.servers = directory, servers
        self.input, self.output = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("in", "out"))
        workload.create_topics(servers, self.input, self.output)
        self.program = directory / "example.py"
        self.checkpoint = directory / "checkpoint"
        self.program.write_text(
            source.replace("TOPIC", repr(self.output)).replace(
                "CHECKPOINT", repr(str(self.checkpoint))
            )
        )
        self.sent: Counter[str] = Counter()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        self._log = (directory / "example.log").open("ab")

    def start(self) -> subprocess.Popen[bytes]:
        jars = ",".join(map(str, spark_kafka_jars()))
        submit = f"--jars {jars} --conf spark.sql.shuffle.partitions=2 " + os.environ.get(
            "PYSPARK_SUBMIT_ARGS", "pyspark-shell"
        )
        return subprocess.Popen(
            [sys.executable, str(self.program), self.servers, "subscribe", self.input],
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY / "src"),
                "PYSPARK_SUBMIT_ARGS": submit,
            },
            stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True, cwd=self.directory,
        )  # fmt: skip

    def send(self, lines: int = 20) -> None:
        for number in range(lines):
            line = WORDS[: 1 + number % len(WORDS)]
            self._producer.produce(self.input, " ".join(line).encode())
            self.sent.update(line)
        self._producer.flush(30)

    def committed(self) -> int:
        """Return the last committed epoch, -1 before the first."""
        records = (self.checkpoint / "epochs").glob("*/committed.json")
        return max((int(record.parent.name) for record in records), default=-1)

    def feed_until_committed(self, process: subprocess.Popen[bytes], epoch: int) -> None:
        def done() -> bool:
            assert process.poll() is None, self.tail()
            self.send()
            return self.committed() >= epoch

        wait_until(f"epoch {epoch} is committed", done, 240, pause_s=0.3)

    def tail(self) -> str:
        return Path(self._log.name).read_text(errors="replace")[-4000:]


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def live(program: Program) -> subprocess.Popen[bytes]:
    """Run the program until its last life; rows come all the time."""
    for _ in range(KILLS):
        process = program.start()
        program.feed_until_committed(process, program.committed() + 2)
        program.send()  # some rows are planned, or on their way, when it dies
        time.sleep(0.2)
        kill(process)
    return program.start()


def rows(program: Program) -> list[tuple[str, str]]:
    found = workload.read_topic(program.servers, program.output, to_the_end=False)
    return [(seen.key, seen.value) for seen in found]


def start_statement(columns: str, mode: str) -> str:
    return EXACTLY_ONCE.replace("COLUMNS", columns).replace("MODE", repr(mode))


@pytest.mark.timeout(1200)
def test_the_word_count_of_sparks_documentation(kafka: LocalKafka, tmp_path: Path) -> None:
    source = WORD_COUNT.read_text()
    assert source.count(STARTED) == 1
    counts = start_statement("'word AS key', 'CAST(count AS STRING) AS value'", "update")
    program = Program(tmp_path, kafka.bootstrap_servers, source.replace(STARTED, counts))
    # The example reads from the end of its topic: rows count once its first epoch has planned it.
    process = program.start()
    offsets = tmp_path / "checkpoint/offsets/0"
    wait_until("its first epoch is planned", offsets.exists, 240, pause_s=0.2)
    kill(process)
    last = live(program)
    try:
        want = dict(program.sent)

        def counted() -> bool:
            assert last.poll() is None, program.tail()
            return {key: int(value) for key, value in rows(program)} == want

        wait_until("the counts are right", counted, 240, pause_s=1)
        found = rows(program)
    finally:
        kill(last)
    assert [pair for pair, times in Counter(found).items() if times > 1] == [], "doubled"
    for word in WORDS:
        history = [int(value) for key, value in found if key == word]
        assert history == sorted(history) and len(history) > KILLS


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_the_windowed_count_of_sparks_documentation(kafka: LocalKafka, tmp_path: Path) -> None:
    head, _, rest = WORD_COUNT.read_text().partition("    # Create DataSet representing the stream")
    end = rest.partition(STARTED)[2]
    counts = start_statement(
        "'word AS key', \"concat(unix_timestamp(window.start), ' ', count) AS value\"", "append"
    )
    program = Program(tmp_path, kafka.bootstrap_servers, head + WINDOWED + counts + end)
    last = live(program)
    try:
        wanted = Counter(program.sent)

        def closed() -> bool:
            assert last.poll() is None, program.tail()
            # A row of another word moves the watermark on; each row is in two windows.
            program._producer.produce(program.input, b"end")
            program._producer.flush(30)
            found = Counter[str]()
            for key, value in rows(program):
                found[key] += int(value.split()[1])
            return all(found[word] >= 2 * wanted[word] for word in WORDS)

        wait_until("all windows are closed", closed, 240, pause_s=1)
        found = [(key, value) for key, value in rows(program) if key in WORDS]
    finally:
        kill(last)
    windows = Counter((key, value.split()[0]) for key, value in found)
    assert [window for window, times in windows.items() if times > 1] == [], "doubled"
    totals = Counter[str]()
    for key, value in found:
        totals[key] += int(value.split()[1])
    assert totals == {word: 2 * wanted[word] for word in WORDS}
