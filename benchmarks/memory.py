"""What a task holds: the peak of its Python worker, for each sink and size of rows.

    python -m benchmarks.memory [--mb 600] [--sizes 1000,300000,10000000] [--only postgres]

One task writes MB megabytes of rows (a number, a random text of the size) in one epoch. "plain" is
Spark's own `mapInArrow` that passes the same rows on. Each run has a Python worker of its own; its
peak is the kernel's (`VmHWM` in /proc), so none is missed. Dead letters: every fourth row is
refused, and goes to JSON files.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.spark.session import spark_session

RUN = "SEAMARK_MEMORY_RUN"
LARGEST = 2**24
KAFKA = {"message.max.bytes": str(LARGEST), "replica.fetch.max.bytes": str(LARGEST)}
BAD = "CHECK (id % 4 <> 3)"
SCHEMA = "id BIGINT"
SQL_MODES: dict[str, dict[str, Any]] = {
    "": {},
    ", staged": {"mode": "staged"},
    ", upsert": {"mode": "upsert", "keys": ["id"]},
    ", spool": {"spool": True},
    ", dead letters": {"constraint": BAD},
}
REDIS_MODES: dict[str, dict[str, Any]] = {
    f", {mode}{more}": {"mode": mode, "value": value}
    for mode in ("upsert", "staged")
    for more, value in (("", "text"), (" of hashes", None))
}

Rows = Callable[[DataFrame], DataFrame]
Run = Callable[[SparkSession, Path, Rows], None]


def new_worker(spark: SparkSession) -> str:
    """Have the next query start a Python worker of its own, and return its mark."""
    mark = uuid.uuid4().hex
    spark.sparkContext.environment[RUN] = mark
    return mark


def peak_bytes(mark: str) -> int:
    """Return the highest memory that a Python process of this mark has had."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, FileNotFoundError):
            if process.environ().get(RUN) == mark:
                status = Path(f"/proc/{process.pid}/status").read_text()
                found = max(found, int(status.split("VmHWM:")[1].split()[0]) * 1024)
    return found


def passed_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def plain(spark: SparkSession, directory: Path, rows: Rows) -> None:
    frame = rows(spark.read.schema(SCHEMA).json(str(directory / "in")))
    frame.mapInArrow(passed_on, frame.schema).write.format("noop").mode("append").save()


def into(
    sink: Callable[[Path], Any], spark: SparkSession, directory: Path, rows: Rows, *,
    letters: bool = False, **checkpoint: Any,
) -> None:  # fmt: skip
    config = sm.CheckpointConfig(storage=f"file://{directory}/store", **checkpoint)
    job = sm.Job(f"memory-{uuid.uuid4().hex[:8]}", config)
    source = sm.FileSource(str(directory / "in"), "json", SCHEMA, ending="latest")
    frame = rows(job.source(source, uid="in"))
    to = {"on_bad_row": "dead_letter", "dead_letters": sm.FileSink(directory / "bad", "json")}
    job.sink(frame, sink(directory), uid="out", **(to if letters else {}))  # type: ignore[arg-type]
    job.run()


def runs(only: str, stack: contextlib.ExitStack) -> dict[str, Run]:
    """Return the chosen runs by name; starts the servers that they need."""
    found: dict[str, Run] = {"plain mapInArrow": plain}

    def add(name: str, sink: Callable[[Path], Any], **how: Any) -> None:
        if only in name:
            found[name] = partial(into, sink, **how)

    def chosen(sink: str, modes: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {f"{sink}{more}": how for more, how in modes.items() if only in f"{sink}{more}"}

    for kind in ("parquet", "json", "csv"):
        add(f"FileSink {kind}", lambda at, kind=kind: sm.FileSink(at / "out", kind))
    add("FileSink parquet, unaligned", lambda at: sm.FileSink(at / "out"),
        unaligned=True, aligned_timeout=0)  # fmt: skip
    add("SQLiteSink", lambda at: sm.SQLiteSink(at / "out.db", "big"))
    add("DeltaSink", lambda at: sm.DeltaSink(at / "out", create_table=True))
    add("WriteAheadSink", lambda at: sm.WriteAheadSink.foreach_batch(nothing))
    if modes := chosen("KafkaSink", {"": {}, ", dead letters": {"letters": True}}):
        kafka = stack.enter_context(LocalKafka(overrides=KAFKA))
        for name, how in modes.items():
            add(name, partial(to_kafka, kafka), **how)
    if modes := chosen("PostgresSink", SQL_MODES):
        postgres = stack.enter_context(PostgresServer({"max_wal_size": "4GB"}))
        for name, how in modes.items():
            add(name, partial(to_postgres, postgres, **how), letters="constraint" in how)
    if modes := chosen("MySQLSink", SQL_MODES):
        mysql = stack.enter_context(MariaDBServer({"max_allowed_packet": "64M"}))
        for name, how in modes.items():
            add(name, partial(to_mysql, mysql, **how), letters="constraint" in how)
    if modes := chosen("RedisSink", REDIS_MODES):
        redis = stack.enter_context(RedisServer())
        for name, how in modes.items():
            add(name, partial(to_redis, redis, **how))
    return found


def nothing(frame: DataFrame, token: object) -> None: ...


def to_kafka(server: LocalKafka, at: Path) -> sm.KafkaSink:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"big-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    made = admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": str(LARGEST)})])
    made[topic].result()
    options = {"message.max.bytes": LARGEST}
    return sm.KafkaSink(server.bootstrap_servers, topic, transactional_id_prefix=topic,
                        producer_options=options)  # fmt: skip


def to_postgres(
    server: PostgresServer, at: Path, *, constraint: str = "", **how: Any
) -> sm.PostgresSink:
    server.execute("DROP TABLE IF EXISTS big")
    server.execute(f"CREATE TABLE big (id bigint PRIMARY KEY {constraint}, text text)")
    return sm.PostgresSink(server.url(), "big", **how)


def to_mysql(server: MariaDBServer, at: Path, *, constraint: str = "", **how: Any) -> sm.MySQLSink:
    server.execute("DROP TABLE IF EXISTS big")
    server.execute(f"CREATE TABLE big (id BIGINT PRIMARY KEY {constraint}, text LONGTEXT)")
    return sm.MySQLSink(server.url(), "big", **how)


def to_redis(server: RedisServer, at: Path, **how: Any) -> sm.RedisSink:
    server.client().flushall()
    return sm.RedisSink(server.url(), key="id", **how)


def with_text(size: int, name: str, frame: DataFrame) -> DataFrame:
    """Return the rows of a run; those for dead letters of Kafka are too large by far."""
    text = f"randstr({size}, 7)"
    if name == "KafkaSink, dead letters":
        text = f"repeat({text}, if(id % 4 = 3, {LARGEST // size + 1}, 1))"
    if name.startswith("KafkaSink"):
        return frame.selectExpr("CAST(id AS STRING) AS key", f"{text} AS value")
    if name.startswith("RedisSink"):  # few keys: Redis holds all of them in memory
        return frame.selectExpr("CAST(id % 16 AS STRING) AS id", f"{text} AS text")
    return frame.selectExpr("id", f"{text} AS text")


def measure(spark: SparkSession, name: str, run: Run, size: int, total: int) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "in").mkdir()
        ids = range(total // size)
        (directory / "in" / "ids.json").write_text("".join(f'{{"id":{id_}}}\n' for id_ in ids))
        mark = new_worker(spark)
        run(spark, directory, partial(with_text, size, name))
        return peak_bytes(mark)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=600, help="the rows of the epoch, in megabytes")
    parser.add_argument("--sizes", default="1000,300000,10000000", help="bytes of a row")
    parser.add_argument("--only", default="", help="a part of the runs' names")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[1] --driver-memory 3g pyspark-shell"
    spark = spark_session("memory")
    shown = Table(title=f"Peak of a Python worker, MB; {arguments.mb} MB in one task")
    for column in ("", *(f"{size:,} bytes" for size in sizes)):
        shown.add_column(column, justify="right" if column else "left")
    console = Console(width=120)
    with contextlib.ExitStack() as stack:
        for name, run in runs(arguments.only, stack).items():
            peaks = [measure(spark, name, run, size, arguments.mb * 1_000_000) for size in sizes]
            shown.add_row(name, *(f"{peak / 1e6:,.0f}" for peak in peaks))
            console.print(name, *(f"{peak / 1e6:,.0f}" for peak in peaks))
    console.print(shown)


if __name__ == "__main__":
    main()
