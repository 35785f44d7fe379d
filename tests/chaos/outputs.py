"""The sinks of `app_sinks.py`: the making of each, and its content for other programs.

To put another sink into the kill matrix, write its `Output` here and name it in `matrix.py`.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import sqlalchemy as sa

from seamark.files import HadoopSettings, open_directory
from seamark.files.s3 import S3Directory
from tests.chaos import checker, workload
from tests.chaos.history import Pair
from tests.servers.hdfs import LocalHdfs
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.s3 import LocalS3


class Output:
    """One sink of one job. `uid` is its uid, `frame` its input: ``rows`` or ``counts``.

    `app_sinks.py` makes it from `maker` and `arguments`: JSON alone. The target is new.
    `dead_letters` has both for the sink of the refused rows.
    """

    dead_letters: dict[str, Any] | None = None

    def __init__(self, uid: str, frame: str, maker: str, **arguments: Any) -> None:
        self.uid = uid
        self.frame = frame
        self.maker = maker
        self.arguments = arguments

    def rows(self) -> list[Pair]:
        """Return every row visible to a reader."""
        raise NotImplementedError

    def count(self) -> int:
        """Return how many rows a reader sees, while the job runs."""
        return len(self.rows())

    def left_open(self) -> list[str]:
        """Return the transactions not ended by anybody."""
        return []

    def check(self, expected: Sequence[Pair]) -> list[checker.Anomaly]:
        """Judge the sink's content, after the end of the last driver."""
        return checker.check_rows(self.uid, expected, self.rows())

    def close(self) -> None:
        """Free the reader's resources."""


class SQLiteOutput(Output):
    def __init__(self, directory: Path, frame: str = "rows") -> None:
        self._database = directory / "sink.db"
        self._table = f"{frame}_out"
        super().__init__(
            f"{frame}-to-sqlite", frame, "SQLiteSink", path=str(self._database), table=self._table
        )

    def rows(self) -> list[Pair]:
        return workload.read_table(self._database, self._table)

    def left_open(self) -> list[str]:
        return [str(path) for path in Path(f"{self._database}.seamark").rglob("*.*")]


class SlowSQLiteOutput(SQLiteOutput):
    """As SQLite, but each row takes its time."""

    def __init__(self, directory: Path, frame: str = "rows") -> None:
        super().__init__(directory, frame)
        self.maker = "tests.chaos.slow_sink:SlowSQLiteSink"


class FilesOutput(Output):
    def __init__(self, directory: Path, frame: str = "rows") -> None:
        self._directory = directory / f"{frame}-files"
        super().__init__(
            f"{frame}-to-files", frame, "FileSink", path=str(self._directory), format="parquet"
        )

    def rows(self) -> list[Pair]:
        return workload.read_parquet(self._directory)

    def left_open(self) -> list[str]:
        return [str(path) for path in (self._directory / "_seamark/pending").rglob("*.pending")]


class SentOutput(Output):
    """The rows sent by a write-ahead sink to a target with a table of tokens
    (`token_keeper.py`)."""

    def __init__(self, directory: Path, frame: str = "rows") -> None:
        self._database = directory / "target.db"
        super().__init__(
            f"{frame}-sent", frame, "tests.chaos.token_keeper:TokenKeeper", path=str(self._database)
        )

    def rows(self) -> list[Pair]:
        return workload.read_table(self._database, "rows")


class StoredFilesOutput(Output):
    """Files on HDFS or S3, read by listing them.

    The sink's `hadoop` settings reach S3; without `configured` the job's Spark session must.
    """

    def __init__(
        self, server: LocalHdfs | LocalS3, frame: str = "rows", *, configured: bool = True
    ) -> None:
        settings = server.spark_settings() if isinstance(server, LocalS3) else {}
        base = f"s3a://{server.bucket}" if isinstance(server, LocalS3) else server.uri
        store = base.partition(":")[0]
        self._directory: Any = open_directory(
            f"{base}/chaos/{uuid.uuid4().hex}", HadoopSettings.given(settings, store)
        )
        self._read: dict[str, list[Pair]] = {}
        super().__init__(
            f"{frame}-to-{store}", frame, "FileSink",
            path=self._directory.uri,
            hadoop=settings if configured else {},
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        shown = [path for path in self._directory.tree() if not path.startswith("_")]
        for path in shown:
            if path not in self._read:  # a visible file never changes
                with self._directory.open(path) as file:
                    table = pa.parquet.read_table(io.BytesIO(file.read()))
                columns = (table["key"].to_pylist(), table["value"].to_pylist())
                self._read[path] = list(map(Pair, *columns))
        return [row for path in shown for row in self._read[path]]

    def left_open(self) -> list[str]:
        if isinstance(self._directory, S3Directory):
            return [found.path for found in self._directory.uploads()]
        return list(self._directory.tree("_seamark/pending"))


class KafkaOutput(Output):
    """A row seen by a reader beside the job must never be gone later."""

    def __init__(self, servers: str, frame: str = "rows", *, spool: bool = False) -> None:
        self._servers = servers
        self._name = f"sinks-{uuid.uuid4().hex[:8]}"
        workload.create_topics(servers, self._name)
        super().__init__(
            f"{frame}-to-kafka", frame, "KafkaSink",
            bootstrap_servers=servers, topic=self._name, transactional_id_prefix=self._name,
            spool=spool,
        )  # fmt: skip
        self._reader = workload.LiveReader(servers, self._name)
        self._reader.start()

    def rows(self) -> list[Pair]:
        return [Pair(seen.key, seen.value) for seen in self._final()]

    def count(self) -> int:
        return len(self._reader.rows)

    def left_open(self) -> list[str]:
        return workload.open_transactions(self._servers, self._name)

    def check(self, expected: Sequence[Pair]) -> list[checker.Anomaly]:
        shown = checker.check_shown(self.uid, self._final(), list(self._reader.rows))
        return [*super().check(expected), *shown]

    def close(self) -> None:
        self._reader.close()

    def _final(self) -> list[Any]:
        return workload.read_topic(self._servers, self._name)


class DeltaOutput(Output):
    """A table below `base`, a directory or a URI, with the options of its store."""

    def __init__(
        self, base: Path | str, frame: str = "rows", storage_options: dict[str, str] | None = None
    ) -> None:
        self._uri = f"{base}/{frame}-table"
        self._storage_options = storage_options or {}
        super().__init__(
            f"{frame}-to-delta", frame, "DeltaSink",
            path=self._uri, create_table=True, storage_options=self._storage_options,
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        return workload.read_delta(self._uri, self._storage_options)

    def left_open(self) -> list[str]:
        return workload.delta_files_unnamed(self._uri, self._storage_options)


class IcebergOutput(Output):
    """A table on a local disk, in an SQLite catalog or another one, plain or partitioned, appended
    to or, with keys, changed."""

    def __init__(
        self,
        directory: Path,
        frame: str = "rows",
        partition_by: Sequence[str] = (),
        keys: Sequence[str] = (),
        catalog: dict[str, str] | None = None,
    ) -> None:
        base = directory / f"{frame}-warehouse"
        base.mkdir()
        self._table = "shop.clicks"
        self.catalog = catalog or {
            "type": "sql",
            "uri": f"sqlite:///{base}/catalog.db",
            "warehouse": f"file://{base}",
        }
        super().__init__(
            f"{frame}-to-iceberg", frame, "IcebergSink",
            table=self._table, catalog=self.catalog, create_table=True,
            partition_by=list(partition_by), keys=list(keys),
            mode="upsert" if keys else "append",
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        return workload.read_iceberg(self.catalog, self._table)

    def left_open(self) -> list[str]:
        return workload.iceberg_files_unnamed(self.catalog, self._table)


class PostgresOutput(Output):
    """In a schema of its own."""

    def __init__(
        self, server: PostgresServer, mode: str, frame: str = "rows", *, spool: bool = False
    ) -> None:
        self._server = server
        self._schema = f"s{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE SCHEMA {self._schema}")
        super().__init__(
            f"{frame}-to-postgres-{mode}", frame, "PostgresSink",
            url=server.url(), table=f"{self._schema}.out", mode=mode,
            keys=["key", "value"] if mode == "upsert" else [], create_table=True, spool=spool,
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        if self._server.execute(f"SELECT to_regclass('{self._schema}.out')") == [(None,)]:
            return []
        found = self._server.execute(f"SELECT key, value FROM {self._schema}.out")
        return [Pair(*row) for row in found]

    def left_open(self) -> list[str]:
        found = self._server.execute(
            "SELECT gid FROM pg_prepared_xacts UNION ALL SELECT tablename FROM pg_tables "
            f"WHERE schemaname = '{self._schema}' AND starts_with(tablename, '_seamark_stage_')"
        )
        return [row[0] for row in found]


class RefusingOutput(PostgresOutput):
    """Every fiftieth row is refused, and becomes a dead letter: in another table, or, of staged
    rows, in JSON files."""

    def __init__(self, directory: Path, server: PostgresServer, mode: str) -> None:
        super().__init__(server, mode)
        server.execute(
            f"CREATE TABLE {self._schema}.out (key text NOT NULL, value text CONSTRAINT good "
            "CHECK (split_part(value, ',', 1)::int % 50 <> 7))"
        )
        self._files = directory / "bad"
        if mode == "prepared":
            table = {"url": server.url(), "table": f"{self._schema}.bad", "create_table": True}
            self.dead_letters = {"maker": "PostgresSink", "arguments": table}
        else:
            files = {"path": str(self._files), "format": "json"}
            self.dead_letters = {"maker": "FileSink", "arguments": files}

    def rows(self) -> list[Pair]:
        return [*super().rows(), *self._letters()]

    def check(self, expected: Sequence[Pair]) -> list[checker.Anomaly]:
        bad = [row for row in expected if int(row.value.split(",")[0]) % 50 == 7]
        letters = checker.check_rows(f"{self.uid}.dead-letters", bad, self._letters())
        return [*super().check(expected), *letters]

    def left_open(self) -> list[str]:
        pending = (self._files / "_seamark/pending").rglob("*.json")
        return [*super().left_open(), *map(str, pending)]

    def _letters(self) -> list[Pair]:
        found: list[Any] = [
            json.loads(line)
            for path in sorted(self._files.glob("*.json"))
            for line in path.read_text().splitlines()
        ]
        if self._server.execute(f"SELECT to_regclass('{self._schema}.bad')") != [(None,)]:
            found = [
                {"sink": sink, "reason": reason, "row": json.loads(row)}
                for sink, reason, row in self._server.execute(
                    f"SELECT sink, reason, row_json FROM {self._schema}.bad"
                )
            ]
        for one in found:
            assert one["sink"] == self.uid and 'violates check constraint "good"' in one["reason"]
        return [Pair(**one["row"]) for one in found]


class MySQLOutput(Output):
    """In a database of its own."""

    def __init__(
        self, server: MariaDBServer, mode: str, frame: str = "rows", *, spool: bool = False
    ) -> None:
        self._server = server
        self._database = f"d{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {self._database}")
        super().__init__(
            f"{frame}-to-mysql-{mode}", frame, "MySQLSink",
            url=server.url(database=self._database), table="out", mode=mode,
            keys=["key", "value"] if mode == "upsert" else [], create_table=True, spool=spool,
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        if not self._execute("SHOW TABLES LIKE 'out'"):
            return []
        return [Pair(*row) for row in self._execute("SELECT `key`, value FROM `out`")]

    def left_open(self) -> list[str]:
        stages = self._execute("SHOW TABLES LIKE '\\_seamark\\_stage%'")
        return [str(row) for row in (*self._execute("XA RECOVER"), *stages)]

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        return self._server.execute(sql, database=self._database)


class SqlOutput(Output):
    """By SQLAlchemy, in a place of its own in any database: `url`, and what stands before a table's
    name there."""

    def __init__(self, url: str, prefix: str, mode: str, frame: str = "rows") -> None:
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)
        self._prefix = prefix
        super().__init__(
            f"{frame}-to-sql-{self._engine.dialect.name}-{mode}", frame, "SqlSink",
            url=url, table=f"{prefix}out", mode=mode,
            keys=["key", "value"] if mode == "upsert" else [],
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        names = sa.inspect(self._engine).get_table_names(self._prefix.rstrip(".") or None)
        return (
            [Pair(*row) for row in self._read("key", "value", of="out")] if "out" in names else []
        )

    def left_open(self) -> list[str]:
        names = sa.inspect(self._engine).get_table_names(self._prefix.rstrip(".") or None)
        stages = [name for name in names if name.startswith("_seamark_stage_")]
        return [str(row) for name in stages for row in self._read("_seamark_handle", of=name)]

    def _read(self, *columns: str, of: str) -> list[Any]:
        table = sa.table(of, *map(sa.column, columns), schema=self._prefix.rstrip(".") or None)
        with self._engine.connect() as connection:
            return list(connection.execute(sa.select(*table.c)))


def sql_on_sqlite(directory: Path, mode: str, frame: str = "rows") -> SqlOutput:
    return SqlOutput(f"sqlite:///{directory / 'sql.db'}", "", mode, frame)


def sql_on_postgres(server: PostgresServer, mode: str, frame: str = "rows") -> SqlOutput:
    schema = f"s{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE SCHEMA {schema}")
    return SqlOutput(server.url(), f"{schema}.", mode, frame)


def sql_on_mariadb(server: MariaDBServer, mode: str, frame: str = "rows") -> SqlOutput:
    database = f"d{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {database}")
    url = server.url(database=database).replace("mysql:", "mariadb+pymysql:")
    return SqlOutput(url, "", mode, frame)


class DuckDBOutput(Output):
    """A table in a file that no other process reads while a driver has it open."""

    def __init__(self, directory: Path, frame: str = "rows") -> None:
        self._file = directory / f"{frame}.duckdb"
        super().__init__(
            f"{frame}-to-duckdb", frame, "SqlSink", url=f"duckdb:///{self._file}", table="out"
        )

    def rows(self) -> list[Pair]:
        import duckdb

        with duckdb.connect(str(self._file), read_only=True) as found:
            return [Pair(*row) for row in found.execute("SELECT key, value FROM out").fetchall()]

    def left_open(self) -> list[str]:
        staged = self._file.with_name(f"{self._file.name}.seamark")
        return sorted(path.name for path in staged.rglob("*") if path.is_file())


class RedisOutput(Output):
    """Under a prefix of its own. A row's value is unique (unlike a count) and its key; its own key
    is the string or the hash's field there: so a lost row shows, and a doubled one cannot be."""

    def __init__(self, server: RedisServer, mode: str, kind: str) -> None:
        self._client = server.client()
        self._prefix = f"{uuid.uuid4().hex[:8]}:"
        self._uid = f"rows-to-redis-{mode}-{kind}"
        super().__init__(
            self._uid, "rows", "RedisSink",
            url=server.url(), key="value", value="key" if kind == "strings" else None,
            mode=mode, key_prefix=self._prefix,
        )  # fmt: skip

    def rows(self) -> list[Pair]:
        keys = self._keys(f"{self._prefix}*")
        with self._client.pipeline(transaction=False) as ask:
            for key in keys:
                if self.arguments["value"] is None:
                    ask.hget(key, "key")
                else:
                    ask.get(key)
            found = ask.execute()
        named = zip(found, keys, strict=True)
        return [Pair(text, key.removeprefix(self._prefix)) for text, key in named]

    def left_open(self) -> list[str]:
        return self._keys(f"seamark:*:{self._uid}:stage*")

    def count(self) -> int:
        return len(self._keys(f"{self._prefix}*"))

    def close(self) -> None:
        self._client.close()

    def _keys(self, pattern: str) -> list[str]:
        return list(set(self._client.scan_iter(pattern, count=10_000)))
