"""Each database sink beside the fastest plain load of the same server, alternating; without Spark.
The sinks of tables stand beside `FileSink` instead.

    python -m benchmarks.sinks [--rows 1000000] [--rounds 3] [--tasks 4] [--only postgres]

An epoch of rows of 100 bytes (a bigint primary key, a text) goes into an empty table, as Arrow
batches of 10,000 rows from as many processes as an epoch has tasks. Time runs from the first row
until a reader sees the last one: for a sink that is `write` and `prepare_commit` in the processes
and then `commit` in this one; for a plain load, which knows no epochs, the processes' own commits.
Both make the same bytes of the same batches. Plain loads are run with one connection too, and the
faster one is what the sinks are compared with. A first round warms up and is not counted.

An upsert merges through a second table, so its fair peer is the plain upsert: the same load into a
temporary table, and one INSERT … ON CONFLICT out of it. Both ratios are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing.pool
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from tests.servers.mariadb import MariaDBServer
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

import seamark as sm
from seamark.checkpoint import spool
from seamark.model.schema import Column

BATCH_ROWS = 10_000
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
JOB, UID = "c0ffee00c0ffee00", "bench"
BUFFER = Path(tempfile.mkdtemp(prefix="sm-bench-"))
"""Where spools lie; made once, before the processes are forked."""
POSTGRES = {
    "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h",
    "maintenance_work_mem": "256MB",
}  # fmt: skip
MYSQL = {"innodb-buffer-pool-size": "1G", "innodb-log-file-size": "1G"}


@dataclass(frozen=True)
class Part:
    """What one task writes: `rows` of the epoch's rows, from `first`. `text`: ids as text."""

    number: int
    first: int
    rows: int
    text: bool = False

    def batches(self) -> list[pa.RecordBatch]:
        rows = _epoch[self.text].slice(self.first, self.rows)
        return list(rows.to_batches(max_chunksize=BATCH_ROWS))


_epoch: list[pa.Table] = []
"""In each process: the rows of an epoch, made beforehand, with numbers and with texts as ids."""


def make_rows(count: int) -> None:
    texts = [f"{i:010d}" + "x" * 82 for i in range(count)]
    ids = pa.array(range(count), pa.int64())
    _epoch.append(pa.table([ids, pa.array(texts)], schema=SCHEMA))
    _epoch.append(_epoch[0].set_column(0, "id", ids.cast(pa.string())))


# --- in the processes


def write(sink: Any, epoch: int, part: Part) -> list[bytes]:
    """What a task of an epoch does."""
    context = sm.WriterContext(
        JOB, UID, 1, epoch, part.number, 0, epoch - 1, spool_uri=f"file://{BUFFER}"
    )
    writer = spool.keeping(sink, sink.create_writer(context), context)
    for batch in part.batches():
        writer.write(batch)
    return [spool.dump(sink, committable) for committable in writer.prepare_commit()]


def load_postgres(url: str, upsert: bool, part: Part) -> None:
    import psycopg

    from seamark.sinks.postgres import copy_format
    from seamark.sinks.postgres.table import describe

    with psycopg.connect(url) as connection:
        table = describe(connection, "public.orders")
        assert table is not None
        types = [column.type for column in table.columns]
        if upsert:
            connection.execute("CREATE TEMP TABLE stage (id bigint, text text) ON COMMIT DROP")
        into = "stage" if upsert else "orders"
        with connection.cursor().copy(f"COPY {into} FROM STDIN (FORMAT binary)") as copy:
            copy.write(copy_format.HEADER)
            for batch in part.batches():
                copy.write(copy_format.rows(batch, types))
            copy.write(copy_format.TRAILER)
        if upsert:
            connection.execute(
                "INSERT INTO orders SELECT * FROM stage "
                "ON CONFLICT (id) DO UPDATE SET text = excluded.text"
            )


def load_mysql(url: str, upsert: bool, part: Part) -> None:
    from seamark.sinks.mysql import connection as server
    from seamark.sinks.mysql.loading import Loader

    with contextlib.closing(
        server.connect(
            server.parse_url(url, "bench"), timeout_s=600, lock_timeout_s=60, local_infile=True
        )
    ) as connection:
        server.read_committed(connection)
        if upsert:
            server.execute(connection, "CREATE TEMPORARY TABLE stage (id BIGINT, text LONGTEXT)")
        server.execute(connection, "START TRANSACTION")
        loader = Loader(connection, "stage" if upsert else "orders", SCHEMA.names, ["text"])
        for batch in part.batches():
            loader.load(batch)
        if upsert:
            server.execute(
                connection,
                "INSERT INTO orders SELECT * FROM stage AS s "
                "ON DUPLICATE KEY UPDATE orders.text = s.text",
            )
        server.execute(connection, "COMMIT")


def load_sqlite(path: str, parts: list[Part]) -> None:
    """In one transaction that is as durable as the sink's own."""
    import adbc_driver_sqlite.dbapi

    rows = pa.Table.from_batches([batch for part in parts for batch in part.batches()])
    with adbc_driver_sqlite.dbapi.connect(path) as connection, connection.cursor() as cursor:
        connection.adbc_connection.set_autocommit(True)  # no transaction takes the next setting
        cursor.execute("PRAGMA synchronous=FULL")
        connection.adbc_connection.set_autocommit(False)
        cursor.adbc_ingest("orders", rows, mode="append")
        connection.commit()


def load_redis(url: str, part: Part) -> None:
    from seamark.sinks.redis.rows import Layout, blocks
    from seamark.sinks.redis.server import Link, parse_url

    with contextlib.closing(Link(parse_url(url, "bench"), 60)) as link:
        on_its_way = False
        for batch in part.batches():
            for block in blocks(batch, Layout("id", "text", "", None), mset=True):
                if on_its_way:
                    link.answer()
                link.send([b"*%d\r\n$4\r\nMSET\r\n" % (1 + block.arguments), block.body])
                on_its_way = True
        link.answer()


# --- in this process

Run = Callable[[multiprocessing.pool.Pool, list[Part]], None]
_epochs = itertools.count(1)


@dataclass(frozen=True)
class Variant:
    """One way to load. `peers` are the plain ones that it is compared with: the faster counts."""

    name: str
    run: Run
    peers: tuple[str, ...] = ()
    fair_peers: tuple[str, ...] = ()


def plain(load: Callable[[Part], None], *, one: bool = False) -> Run:
    def run(pool: multiprocessing.pool.Pool, parts: list[Part]) -> None:
        whole = [Part(0, 0, sum(part.rows for part in parts), parts[0].text)]
        pool.map(load, whole if one else parts, chunksize=1)

    return run


@contextlib.contextmanager
def exactly_once(sink: Any) -> Iterator[Run]:
    schema = (Column("id", "bigint"), Column("text", "string"))
    committer = sink.create_committer(sm.SinkContext(JOB, "bench", UID, 1, 5.0, schema))
    committer.preflight()

    def run(pool: multiprocessing.pool.Pool, parts: list[Part]) -> None:
        epoch = next(_epochs)
        written = pool.map(functools.partial(write, sink, epoch), parts, chunksize=1)
        left = [spool.load(sink, data)[0] for some in written for data in some]
        while left:  # as the coordinator does
            outcomes = committer.commit(left)
            assert sm.CommitOutcome.LOST not in outcomes
            retry = sm.CommitOutcome.RETRY
            left = [c for c, how in zip(left, outcomes, strict=True) if how is retry]
        shutil.rmtree(BUFFER / str(epoch), ignore_errors=True)

    yield run
    committer.close()


@dataclass(frozen=True)
class System:
    """A server with the empty table ``orders``. `fresh` empties it, `count` counts its rows; `text`
    is whether ids are written as text."""

    name: str
    variants: list[Variant]
    fresh: Callable[[], None]
    count: Callable[[], int]
    text: bool = False


@contextlib.contextmanager
def postgres() -> Iterator[System]:
    with PostgresServer(POSTGRES) as server, contextlib.ExitStack() as stack:
        server.execute("CREATE TABLE orders (id bigint PRIMARY KEY, text text)")

        def fresh() -> None:
            server.execute("TRUNCATE orders")
            server.execute("CHECKPOINT")

        def sink(mode: str, *, spool: bool = False) -> Run:
            keys = ["id"] if mode == "upsert" else []
            made = sm.PostgresSink(server.url(), "orders", mode, keys=keys, spool=spool)
            return stack.enter_context(exactly_once(made))

        copy, merge = (functools.partial(load_postgres, server.url(), way) for way in (False, True))
        loads, merges = ("COPY", "COPY, one connection"), ("upsert", "upsert, one connection")
        variants = [
            Variant(loads[0], plain(copy)),
            Variant(loads[1], plain(copy, one=True)),
            Variant("PostgresSink prepared", sink("prepared"), loads),
            Variant("PostgresSink prepared, spool", sink("prepared", spool=True), loads),
            Variant("PostgresSink staged", sink("staged"), loads),
            Variant(merges[0], plain(merge), loads),
            Variant(merges[1], plain(merge, one=True), loads),
            Variant("PostgresSink upsert", sink("upsert"), loads, merges),
        ]
        yield System(
            "PostgreSQL", variants, fresh,
            lambda: server.execute("SELECT count(*) FROM orders")[0][0],
        )  # fmt: skip


@contextlib.contextmanager
def mysql(name: str, kind: type[MariaDBServer]) -> Iterator[System]:
    with kind(MYSQL) as server, contextlib.ExitStack() as stack:
        server.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, text LONGTEXT)")

        def sink(mode: str, *, spool: bool = False) -> Run:
            keys = ["id"] if mode == "upsert" else []
            made = sm.MySQLSink(server.url(), "orders", mode, keys=keys, spool=spool)
            return stack.enter_context(exactly_once(made))

        load, merge = (functools.partial(load_mysql, server.url(), way) for way in (False, True))
        loads = ("LOAD DATA", "LOAD DATA, one connection")
        merges = ("upsert", "upsert, one connection")
        variants = [
            Variant(loads[0], plain(load)),
            Variant(loads[1], plain(load, one=True)),
            Variant("MySQLSink xa", sink("xa"), loads),
            Variant("MySQLSink xa, spool", sink("xa", spool=True), loads),
            Variant("MySQLSink staged", sink("staged"), loads),
            Variant(merges[0], plain(merge), loads),
            Variant(merges[1], plain(merge, one=True), loads),
            Variant("MySQLSink upsert", sink("upsert"), loads, merges),
        ]
        yield System(
            name, variants,
            lambda: server.execute("TRUNCATE orders") and None,
            lambda: server.execute("SELECT count(*) FROM orders")[0][0],
        )  # fmt: skip


@contextlib.contextmanager
def sqlite() -> Iterator[System]:
    from seamark.sinks.sqlite import database

    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        path, other = (str(Path(directory, name)) for name in ("orders.db", "rollback.db"))
        sink = sm.SQLiteSink(path, "orders")
        run = stack.enter_context(exactly_once(sink))  # its preflight turns WAL mode on

        def ask(sql: str) -> list[Any]:
            answers = []
            for one in (path, other):
                with database.connect(one) as cursor:
                    cursor.execute(sql)
                    answers.append(cursor.fetchone())
            return answers

        def ingest(into: str) -> Run:
            return lambda pool, parts: pool.apply(load_sqlite, (into, parts))

        ask("CREATE TABLE orders (id INTEGER PRIMARY KEY, text TEXT)")

        def fresh() -> None:
            while any(path.is_file() for path in sink.staging_root.rglob("*")):
                time.sleep(0.01)  # the sink still deletes what it has committed
            ask("DELETE FROM orders")
            ask("PRAGMA wal_checkpoint(TRUNCATE)")

        variants = [
            Variant("ADBC ingest", ingest(path)),
            # Not the sink's peer: readers and the writer of such a database wait for each other.
            Variant("ADBC ingest, no WAL", ingest(other), ("ADBC ingest",)),
            Variant("SQLiteSink", run, ("ADBC ingest",)),
        ]
        yield System(
            "SQLite", variants, fresh,
            lambda: sum(count for (count,) in ask("SELECT count(*) FROM orders")),
        )  # fmt: skip


@contextlib.contextmanager
def redis() -> Iterator[System]:
    """The server writes its append-only file through at every command."""
    with RedisServer() as server, contextlib.ExitStack() as stack:

        def sink(mode: str, database: int) -> Run:
            made = sm.RedisSink(server.url(database), key="id", value="text", mode=mode)
            return stack.enter_context(exactly_once(made))

        def ask(script: str) -> int:
            return sum(server.client(number).eval(script, 0) for number in range(3))

        load = functools.partial(load_redis, server.url())
        loads = ("MSET", "MSET, one connection")
        variants = [
            Variant(loads[0], plain(load)),
            Variant(loads[1], plain(load, one=True)),
            Variant("RedisSink upsert", sink("upsert", 1), loads),
            Variant("RedisSink staged", sink("staged", 2), loads),
        ]
        # Besides rows a database holds what the sink keeps of its own.
        rows = "local rows = redis.call('KEYS', '[0-9]*')\n"
        unlink = "for _, row in ipairs(rows) do redis.call('UNLINK', row) end\n"
        yield System(
            "Redis", variants, lambda: ask(rows + unlink + "return 0") and None,
            lambda: ask(rows + "return #rows"), text=True,
        )  # fmt: skip


@contextlib.contextmanager
def tables() -> Iterator[System]:
    """Parquet on a local disk: a table's sinks beside the plain files."""
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    with tempfile.TemporaryDirectory() as base, contextlib.ExitStack() as stack:
        catalog = {
            "type": "sql", "uri": f"sqlite:///{base}/catalog.db", "warehouse": f"file://{base}/ice",
        }  # fmt: skip
        sinks = {
            "FileSink, Parquet": sm.FileSink(f"{base}/files", "parquet"),
            "DeltaSink": sm.DeltaSink(f"{base}/delta", create_table=True),
            "IcebergSink": sm.IcebergSink("shop.orders", catalog, create_table=True),
        }
        runs = {name: stack.enter_context(exactly_once(sink)) for name, sink in sinks.items()}
        before = [0]

        def rows() -> int:
            files = sum(
                pq.read_metadata(path).num_rows for path in Path(base, "files").glob("*.parquet")
            )
            added = pa.table(DeltaTable(f"{base}/delta").get_add_actions())["num_records"]
            table = load_catalog("default", **catalog).load_table("shop.orders")
            planned = sum(task.file.record_count for task in table.scan().plan_files())
            return files + sum(added.to_pylist()) + planned

        peer = ("FileSink, Parquet",)
        variants = [Variant(name, run, peer) for name, run in runs.items()]
        yield System(
            "Parquet on a local disk", variants,
            lambda: before.__setitem__(0, rows()), lambda: rows() - before[0],
        )  # fmt: skip


SYSTEMS = {
    "postgres": postgres,
    "mariadb": lambda: mysql("MariaDB", MariaDBServer),
    "mysql": lambda: mysql("MySQL 8", MySQLServer),
    "sqlite": sqlite,
    "redis": redis,
    "tables": tables,
}


def measure(
    system: System, pool: multiprocessing.pool.Pool, parts: list[Part], rounds: int, only: str
) -> dict[str, list[float]]:
    """Return each variant's rows a second, a value a round."""
    rates: dict[str, list[float]] = {v.name: [] for v in system.variants if only in v.name}
    parts = [dataclasses.replace(part, text=system.text) for part in parts]
    total = sum(part.rows for part in parts)
    for round_ in range(rounds + 1):
        for variant in system.variants:
            if variant.name not in rates:
                continue
            system.fresh()
            begun = time.perf_counter()
            variant.run(pool, parts)
            took_s = time.perf_counter() - begun
            assert system.count() == total, variant.name
            if round_:
                rates[variant.name].append(total / took_s)
    return rates


def table(system: System, rates: dict[str, list[float]], rows: int) -> Table:
    shown = Table(title=f"{system.name}, {rows:,} rows an epoch")
    for column in ("variant", "rows/s", "lowest", "highest", "x plain load", "x plain upsert"):
        shown.add_column(column, justify="right" if column != "variant" else "left")
    median = {name: statistics.median(values) for name, values in rates.items()}

    def ratio(name: str, peers: tuple[str, ...]) -> str:
        best = max((median[peer] for peer in peers if peer in median), default=0.0)
        return f"{median[name] / best:.2f}" if best else ""

    for variant in system.variants:
        if values := rates.get(variant.name):
            figures = (median[variant.name], min(values), max(values))
            shown.add_row(
                variant.name,
                *(f"{figure:,.0f}" for figure in figures),
                ratio(variant.name, variant.peers),
                ratio(variant.name, variant.fair_peers),
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4, help="processes that write an epoch")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--only", default="", help="a part of the variants' names, for trials")
    arguments = parser.parse_args()
    rows, tasks = arguments.rows // arguments.tasks, arguments.tasks
    parts = [Part(i, i * rows, rows) for i in range(tasks)]
    console = Console(width=120)
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(tasks, make_rows, (rows * tasks,)) as pool:
        for name in arguments.systems.split(","):
            with SYSTEMS[name]() as system:
                rates = measure(system, pool, parts, arguments.rounds, arguments.only)
                console.print(table(system, rates, rows * tasks))


if __name__ == "__main__":
    main()
