"""The kill matrix: one table of jobs, and the failpoints for killing each.

`MATRIX` names the rows. A sink is put into it by three things: its `Output` (`outputs.py`), its
`Kind` here with the failpoints of its committer and its writer, and a row naming it. `conftest.py`
starts the servers. `test_matrix.py` does the killing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.protocol.points import Point
from tests.chaos.outputs import (
    DeltaOutput,
    FilesOutput,
    IcebergOutput,
    KafkaOutput,
    MySQLOutput,
    Output,
    PostgresOutput,
    RedisOutput,
    RefusingOutput,
    SentOutput,
    SlowSQLiteOutput,
    SQLiteOutput,
    StoredFilesOutput,
    sql_on_mariadb,
    sql_on_postgres,
    sql_on_sqlite,
)
from tests.chaos.scenario import PassthroughScenario, Scenario, SinksScenario, WindowsScenario

FIRST = {Point.RECOVERY_COMMITTED.value: "decided:2", Point.SINK_ABORTED.value: "prepared:2"}
"""The precondition for reaching a point."""
NOT_IN_A_RUN = {Point.DECISION_VOIDED.value, Point.PLAN_VOIDED.value, Point.SUPERSEDED.value}
"""They need two drivers, or a restore."""
PROTOCOL_POINTS = [point.value for point in Point if point.value not in NOT_IN_A_RUN]

CHANNEL_STATE_POINTS = ("channel-state-written", "channel-state-read")
UNALIGNED = {"slow_sink": True, "aligned_timeout": "300ms"}
SPOOL_POINTS = ((), ("spool-written",))

RATE = 200.0
"""Rows a second, in files of 50: most of a cell's minutes pass while no driver reads them."""

Servers = Callable[[str], Any]
"""Starts a server by the name of its fixture, once, and returns it."""


@dataclass(frozen=True)
class Row:
    """A job, and the points of death of its driver (`committer_points`, besides the protocol's) or
    of a Python worker (`writer_points`)."""

    scenario: Callable[[Path, Servers], Scenario]
    committer_points: tuple[str, ...]
    writer_points: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A sink in one of its modes, and its own failpoints."""

    output: Callable[[Path, Servers], Output]
    committer_points: tuple[str, ...]
    writer_points: tuple[str, ...]


def row(*kinds: Kind) -> Row:
    """Return the row of a job with these sinks."""
    return Row(
        lambda directory, servers: SinksScenario(
            directory, [kind.output(directory, servers) for kind in kinds], rate=RATE
        ),
        tuple(dict.fromkeys(point for kind in kinds for point in kind.committer_points)),
        tuple(dict.fromkeys(point for kind in kinds for point in kind.writer_points)),
    )


def sqlite(frame: str = "rows") -> Kind:
    return Kind(
        lambda directory, _: SQLiteOutput(directory, frame),
        ("ledger-committed",),
        ("stage-written",),
    )


def files(frame: str = "rows") -> Kind:
    return Kind(
        lambda directory, _: FilesOutput(directory, frame),
        ("file-renamed",),
        ("pending-written",),
    )


def delta(frame: str = "rows") -> Kind:
    return Kind(
        lambda directory, _: DeltaOutput(directory, frame),
        ("delta-commit-checked", "delta-committed"),
        ("data-files-written",),
    )


def delta_on(store: str, frame: str = "rows") -> Kind:
    def output(directory: Path, servers: Servers) -> Output:
        server = servers(store)
        if store == "hdfs":
            return DeltaOutput(f"{server.uri}/{directory.name}", frame)
        if store in ("gcs", "azure"):
            return DeltaOutput(server.uri(directory.name), frame, server.row_settings())
        path = f"s3a://{server.bucket}/{directory.name}"
        return DeltaOutput(path, frame, server.spark_settings())

    return Kind(output, delta().committer_points, delta().writer_points)


def iceberg(frame: str = "rows", *partition_by: str) -> Kind:
    return Kind(
        lambda directory, _: IcebergOutput(directory, frame, partition_by),
        ("iceberg-commit-checked", "iceberg-manifests-written", "iceberg-committed"),
        ("data-files-written",),
    )


def iceberg_upsert(frame: str = "rows") -> Kind:
    points = iceberg().committer_points
    return Kind(
        lambda directory, _: IcebergOutput(directory, frame, ["key"], ["key", "value"]),
        (points[0], "iceberg-files-rewritten", *points[1:]),
        ("data-files-written",),
    )


def stored_files(store: str, frame: str = "rows") -> Kind:
    return Kind(
        lambda _, servers: StoredFilesOutput(servers(store), frame),
        ("upload-completed" if store == "s3" else "file-renamed",),
        ("pending-written",),
    )


def write_ahead() -> Kind:
    return Kind(
        lambda directory, _: SentOutput(directory),
        ("rows-sent", "sent-recorded"),
        ("write-ahead-written",),
    )


def kafka(frame: str = "rows", *, spool: bool = False) -> Kind:
    return Kind(
        lambda _, servers: KafkaOutput(
            servers("chaos_kafka").bootstrap_servers, frame, spool=spool
        ),
        ("end-transaction-sent",),
        ("transaction-begun", "transaction-flushed", *SPOOL_POINTS[spool]),
    )


def postgres(mode: str, frame: str = "rows", *, spool: bool = False) -> Kind:
    prepared = mode == "prepared"
    return Kind(
        lambda _, servers: PostgresOutput(servers("chaos_postgres"), mode, frame, spool=spool),
        ("prepared-committed" if prepared else "ledger-committed",),
        (
            "transaction-begun",
            "transaction-prepared" if prepared else "stage-written",
            *SPOOL_POINTS[spool],
        ),
    )


def mysql(mode: str, frame: str = "rows", *, spool: bool = False) -> Kind:
    return Kind(
        lambda _, servers: MySQLOutput(servers("chaos_mariadb"), mode, frame, spool=spool),
        ("xa-committed" if mode == "xa" else "ledger-committed",),
        ("xa-prepared" if mode == "xa" else "stage-written", *SPOOL_POINTS[spool]),
    )


def sql(database: str, mode: str, frame: str = "rows") -> Kind:
    def output(directory: Path, servers: Servers) -> Output:
        if database == "sqlite":
            return sql_on_sqlite(directory, mode, frame)
        if database == "mariadb":
            return sql_on_mariadb(servers("chaos_mariadb"), mode, frame)
        return sql_on_postgres(servers("chaos_postgres"), mode, frame)

    return Kind(output, ("ledger-committed",), ("stage-written",))


def redis(mode: str, kind: str) -> Kind:
    staged = mode == "staged"
    return Kind(
        lambda _, servers: RedisOutput(servers("chaos_redis"), mode, kind),
        ("block-applied", "ledger-committed") if staged else (),
        ("stage-written" if staged else "rows-written",),
    )


def refusing(mode: str) -> Kind:
    of_files = ("file-renamed",), ("pending-written",)
    committer_points, writer_points = ((), ()) if mode == "prepared" else of_files
    plain = postgres(mode)
    return Kind(
        lambda directory, servers: RefusingOutput(directory, servers("chaos_postgres"), mode),
        (*plain.committer_points, *committer_points),
        (*plain.writer_points, *writer_points),
    )


MATRIX = {
    "passthrough": Row(
        lambda directory, servers: PassthroughScenario(
            directory, servers("chaos_kafka").bootstrap_servers
        ),
        ("end-transaction-sent",),
        ("transaction-begun", "transaction-flushed"),
    ),
    "unaligned": Row(
        lambda directory, servers: PassthroughScenario(
            directory, servers("chaos_kafka").bootstrap_servers, rate=500.0, **UNALIGNED
        ),
        ("end-transaction-sent",),
        ("transaction-begun", "transaction-flushed", *CHANNEL_STATE_POINTS),
    ),
    "unaligned-sqlite+files": Row(
        lambda directory, _: SinksScenario(
            directory,
            [SlowSQLiteOutput(directory), FilesOutput(directory)],
            rate=RATE,
            settings={"unaligned": True, "aligned_timeout": "300ms"},
        ),
        ("ledger-committed", "file-renamed"),
        ("stage-written", "pending-written", *CHANNEL_STATE_POINTS),
    ),
    "windows": Row(
        lambda directory, servers: WindowsScenario(
            directory, servers("chaos_kafka").bootstrap_servers
        ),
        ("end-transaction-sent", "ledger-committed"),
        ("transaction-begun", "transaction-flushed", "stage-written"),
    ),
    "sqlite": row(sqlite()),
    "files": row(files()),
    "files-hdfs": row(stored_files("hdfs")),
    "files-s3": row(stored_files("s3")),
    "sqlite+files": row(sqlite("counts"), files("counts")),
    "postgres-prepared": row(postgres("prepared")),
    "postgres-staged": row(postgres("staged")),
    # Merged by key, a doubled row would not show: counts of rows do.
    "postgres-upsert": row(postgres("upsert", "counts")),
    "mysql-xa": row(mysql("xa")),
    "mysql-staged": row(mysql("staged")),
    "mysql-upsert": row(mysql("upsert", "counts")),
    "sql-sqlite-staged": row(sql("sqlite", "staged")),
    "sql-postgres-staged": row(sql("postgres", "staged")),
    "sql-mariadb-upsert": row(sql("mariadb", "upsert", "counts")),
    "delta": row(delta()),
    "delta-on-hdfs": row(delta_on("hdfs")),
    "delta-on-s3": row(delta_on("s3")),
    "delta-on-gcs": row(delta_on("gcs")),
    "delta-on-azure": row(delta_on("azure")),
    "delta+sqlite": row(delta("counts"), sqlite("counts")),
    "iceberg": row(iceberg("rows", "bucket(4, key)")),
    "iceberg+sqlite": row(iceberg("counts"), sqlite("counts")),
    "iceberg-upsert": row(iceberg_upsert("counts")),
    "redis-upsert": row(redis("upsert", "strings"), redis("upsert", "hashes")),
    "redis-staged": row(redis("staged", "strings"), redis("staged", "hashes")),
    "write-ahead": row(write_ahead()),
    "spools": row(kafka(spool=True), postgres("prepared", spool=True), mysql("xa", spool=True)),
    "dead-letters": row(refusing("prepared"), refusing("staged")),
    "kafka+postgres": row(kafka(), postgres("prepared")),
    "postgres+mysql": row(postgres("staged"), mysql("xa")),
}
