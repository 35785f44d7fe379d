"""What arrives, what is refused at the start, and what with its row; on each database."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from seamark.checkpoint.row_hash import row_hashes, sums
from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import (
    CommitFailedError,
    ConfigurationError,
    OperationFailedError,
    PreCommitError,
    PreflightError,
    WriteRefusedError,
)
from seamark.model.schema import Column
from seamark.verify.conformance.steps import answered, attempt
from tests.integration.sql.sink_kit import (
    NUMBERS,
    Place,
    batch,
    committer,
    context,
    duckdb_place,
    mariadb_place,
    opened_elsewhere,
    postgres_place,
    sqlite_place,
    write,
)
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

UTC = dt.timezone.utc
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, 127, None]),
    "smallint": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [0.1, -1.5e30, None]),
    "double": (pa.float64(), [0.1, -5e-324, None]),
    "decimal(18,4)": (pa.decimal128(18, 4), [Decimal("0.0001"), Decimal("-9999999999.5"), None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": (
        pa.timestamp("us", "Asia/Tokyo"),
        [dt.datetime(2024, 3, 31, 1, 30, 0, 100, UTC), dt.datetime(1582, 10, 15, tzinfo=UTC), None],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"), [dt.datetime(2024, 3, 31, 2, 30, 0, 100), dt.datetime(1, 1, 1), None],
    ),
    "string": (pa.string(), ["", "ß'\\\"\n😀", None]),
    "binary": (pa.binary(), [b"", bytes(range(256)), None]),
}  # fmt: skip
SCHEMA = tuple(Column(f"c {number}", kind) for number, kind in enumerate(TYPES))
ROWS = pa.record_batch(
    [pa.array(values, kind) for kind, values in TYPES.values()], names=[c.name for c in SCHEMA]
)


def test_every_type_arrives_and_has_the_hash_of_the_ledger(place: Place) -> None:
    if place.url.startswith("firebird"):
        pytest.skip("its driver sends no null bytes and no date before 1858")
    sink, rows = place.sink(), ROWS
    for epoch in (0, 1):
        side = committer(sink, schema=SCHEMA)
        side.commit(write(sink, rows, at=attempt(epoch=epoch)))
    (found,) = sink.read_back(ReadBack(context(), rows.schema, []))
    assert found.writers is None
    twice = pa.concat_batches([rows, rows])
    assert sums(row_hashes(found.rows)) == sums(row_hashes(twice))
    by_epoch = sink.read_back(ReadBack(context(), rows.schema, [], epoch_column="c 1"))
    assert {(one.epoch, len(one.rows)) for one in by_epoch} == {(-128, 2), (127, 2), (-1, 2)}
    gone = dataclasses.replace(sink, table=f"{place.prefix}nowhere")
    with pytest.raises(OperationFailedError, match="does not exist"):
        list(gone.read_back(ReadBack(context(), rows.schema, [])))


@pytest.mark.parametrize(
    ("declared", "spark"),
    [("REAL", "bigint"), ("BIGINT", "string"), ("BIGINT", "double"), ("CHAR(5)", "string"),
     ("DECIMAL(5,2)", "decimal(5,3)"), ("DECIMAL(5,2)", "decimal(6,2)"), ("DATE", "timestamp")],
)  # fmt: skip
def test_a_type_that_would_alter_values_is_refused_at_the_start(
    staging: Place, declared: str, spark: str
) -> None:
    staging.execute(f"CREATE TABLE {{}}orders (id BIGINT, text {declared})")
    with pytest.raises(PreflightError, match=r"'text' has type .* alter values of .* CAST it"):
        committer(staging.sink(), schema=(NUMBERS[0], Column("text", spark)))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("", r"no column 'text' \(it has id\).*ALTER TABLE"),
        (", text VARCHAR(99), more BIGINT NOT NULL", "'more' is NOT NULL, has no default"),
    ],
)
def test_a_table_that_does_not_fit(place: Place, declared: str, said: str) -> None:
    place.execute(f"CREATE TABLE {{}}orders (id BIGINT{declared})")
    with pytest.raises(PreflightError, match=said):
        committer(place.sink())


def test_what_is_missing(place: Place) -> None:
    with pytest.raises(PreflightError, match=r"no such table.*create_table=True"):
        committer(place.sink(create_table=False))
    place.execute("CREATE TABLE {}orders (id BIGINT, text VARCHAR(99))")
    with pytest.raises(PreflightError, match=r"no primary key or unique index .*\(id\).*ALTER"):
        committer(place.sink(mode="upsert", keys=["id"]))
    place.execute("CREATE VIEW {}seen AS SELECT * FROM {}orders")
    with pytest.raises(PreflightError, match="is no table"):
        committer(dataclasses.replace(place.sink(), table=f"{place.prefix}seen"))
    place.execute("DROP VIEW {}seen")


def test_names_that_differ_in_case_alone() -> None:
    sink = Place("sqlite:////tmp/never.db").sink()
    with pytest.raises(ConfigurationError, match="differ in case alone"):
        sink.select_expressions((Column("id", "bigint"), Column("ID", "bigint")))


def test_a_look_changes_nothing(place: Place) -> None:
    sink = place.sink()
    assert sink.inspect(context()) == []
    assert place.stages() == []
    place.execute("CREATE TABLE {}orders (id BIGINT, text BIGINT)")
    (finding,) = sink.inspect(context())
    assert "alter values" in str(finding)
    assert place.stages() == []


def test_refused_rows_are_named_and_the_others_taken(staging: Place) -> None:
    staging.execute("CREATE TABLE {}orders (id SMALLINT NOT NULL, text VARCHAR(5))")
    sink = staging.sink()
    side = committer(sink)
    rows = pa.record_batch(
        {"id": pa.array([1, None, 3, 40_000, 5], pa.int64()),
         "text": pa.array(["good", "null", "too long", "wide", None])}
    )  # fmt: skip
    writer = sink.create_selective_writer(attempt())
    refused = {row.index: row.reason for row in writer.write_accepted(rows)}
    wide = set() if "sqlite" in staging.url else {3}  # SQLite's integers have one width
    assert set(refused) == {1, 2} | wide
    assert refused[1] == "its NOT NULL column 'id' is null"
    assert refused[2] == "its column 'text' has more than the 5 characters of the column"
    assert "\n" not in "".join(refused.values())
    side.commit(writer.prepare_commit())
    assert staging.visible() == [1, 5] if wide else [1, 5, 40_000]
    for index in sorted(refused):
        with pytest.raises(WriteRefusedError) as raised:
            write(sink, rows.slice(index, 1))
        assert "\n" not in str(raised.value)
    assert staging.staged() == 0


@pytest.mark.parametrize("declared", ["TIMESTAMP(3)", "TIMESTAMP(3) WITH TIME ZONE"])
def test_digits_of_a_second_that_postgresql_would_round_off(
    postgres: PostgresServer, declared: str
) -> None:
    with postgres_place(postgres) as place:
        place.execute(f"CREATE TABLE {{}}orders (id BIGINT, text {declared})")
        sink = place.sink()
        side = committer(sink, schema=(NUMBERS[0], Column("text", "timestamp")))
        at = [dt.datetime(2024, 3, 31, 1, 30, 0, us, UTC) for us in (123_000, 123_456)]
        writer = sink.create_selective_writer(attempt())
        rows = pa.record_batch({"id": [1, 2], "text": pa.array(at, pa.timestamp("us", "UTC"))})
        refused = writer.write_accepted(rows)
        said = "its column 'text' has more digits of a second than the column"
        assert [(row.index, row.reason) for row in refused] == [(1, said)]
        side.commit(writer.prepare_commit())
        assert place.visible() == [1]


def test_columns_that_cut_texts_off_or_round_numbers(
    postgres: PostgresServer, mariadb: MariaDBServer
) -> None:
    with postgres_place(postgres) as place:
        for declared in ('"char"', "name"):
            place.execute("DROP TABLE IF EXISTS {}orders")
            place.execute(f"CREATE TABLE {{}}orders (id BIGINT, text {declared})")
            with pytest.raises(PreflightError, match="would alter values"):
                committer(place.sink())
    with mariadb_place(mariadb) as place:
        place.execute("CREATE TABLE orders (id BIGINT, text FLOAT(7,2))")
        with pytest.raises(PreflightError, match="would alter values"):
            committer(place.sink(), schema=(NUMBERS[0], Column("text", "float")))


def test_rows_that_a_constraint_refuses_stop_the_job_and_are_committed_when_it_is_mended(
    place: Place,
) -> None:
    place.execute("CREATE TABLE {}orders (id BIGINT UNIQUE, text VARCHAR(99))")
    place.execute("INSERT INTO {}orders VALUES (2, 'mine')")
    side = committer(place.sink())
    committables = write(place.sink(), batch([1, 2, 3]))
    with pytest.raises(CommitFailedError, match="epoch 0 are decided and cannot be made visible"):
        side.commit(committables)
    assert place.visible() == [2]
    place.execute("DELETE FROM {}orders")
    assert [outcome.name for outcome in side.commit(committables)] == ["COMMITTED"]
    assert place.visible() == [1, 2, 3]
    assert place.staged() == 0


@pytest.mark.parametrize(
    ("declared", "more"),
    [
        ("id BIGINT, text TEXT, g DOUBLE AS (1 / (id - 1)) STORED", ""),
        ("id BIGINT, text TEXT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (1)", ""),
        ("id BIGINT, text TEXT", "SIGNAL SQLSTATE '45000'"),
        ("id BIGINT, text TEXT", "SIGNAL SQLSTATE '02000'"),
        ("id BIGINT, text TEXT", "DELETE FROM orders"),
    ],
)
@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
def test_rows_that_a_server_of_mysqls_kind_refuses_stop_the_job_at_once(
    request: pytest.FixtureRequest, kind: str, declared: str, more: str
) -> None:
    """Some of their SQLSTATEs tell nothing."""
    with mariadb_place(request.getfixturevalue(kind)) as place:
        place.execute(f"CREATE TABLE orders ({declared})")
        if more:
            place.execute(f"CREATE TRIGGER refuses BEFORE INSERT ON orders FOR EACH ROW {more}")
        side = committer(place.sink())
        committables = write(place.sink(), batch([1]))
        with pytest.raises(CommitFailedError, match="cannot be made visible"):
            side.commit(committables)
        place.execute("DROP TABLE orders")
        place.execute("CREATE TABLE orders (id BIGINT, text TEXT)")
        assert side.commit(committables) == [CommitOutcome.COMMITTED]
        side.close()


def test_letters_that_mysql_has_not_in_a_column_are_set_aside(mysql8: MariaDBServer) -> None:
    with mariadb_place(mysql8) as place:
        place.execute("CREATE TABLE orders (id BIGINT, text TEXT CHARACTER SET latin1)")
        committer(place.sink()).close()
        writer = place.sink().create_selective_writer(attempt())
        rows = pa.record_batch({"id": [1, 2], "text": ["\N{GRINNING FACE}", "é"]})
        assert [row.index for row in writer.write_accepted(rows)] == [0]
        writer.abort()


def test_a_table_that_was_altered_gets_another_stage_and_old_rows_still_move(
    staging: Place,
) -> None:
    sink = staging.sink()
    side = committer(sink)
    before = write(sink, batch([1]))
    staging.execute("ALTER TABLE {}orders ADD more BIGINT")
    rows = batch([2]).append_column("more", pa.array([7]))
    after = write(sink, rows, at=attempt(partition=1))
    assert {before[0].stage} != {after[0].stage}
    assert len(list(side.list_lingering())) == 2
    side.commit([*before, *after])
    assert staging.execute("SELECT id, more FROM {}orders ORDER BY id") == [(1, None), (2, 7)]
    assert list(side.list_lingering()) == []
    staging.execute("DROP TABLE {}orders")
    with pytest.raises((WriteRefusedError, PreCommitError), match="does not exist"):
        write(sink, batch([1]))


def test_rows_that_come_after_the_abort_are_found_and_deleted(staging: Place) -> None:
    """The writer's thread was left behind, and goes on."""
    sink = staging.sink()
    side = committer(sink)
    writer = sink.create_writer(attempt())
    writer.write(batch([1]))
    (found,) = side.list_lingering()
    side.abort([found.committable])
    writer.write(batch([2]))
    assert staging.staged() == 1
    assert list(side.list_lingering()) == []
    assert staging.staged() == 0
    writer.abort()


@pytest.mark.parametrize("charset", ["utf8mb4", "ucs2"])
def test_blanks_that_mysql_would_cut_off(staging: Place, charset: str) -> None:
    """Even in strict mode: an end of blanks alone is cut with a note, for which nobody asks."""
    if not staging.url.startswith("mariadb"):
        pytest.skip("MySQL's and MariaDB's texts")
    staging.execute(f"CREATE TABLE orders (id BIGINT, text TINYTEXT CHARACTER SET {charset})")
    sink = staging.sink()
    side = committer(sink)
    full = "x" * (255 if charset == "utf8mb4" else 127)
    texts = [f"{full} ", full, f"{full[:60]} ", " " * 256]
    writer = sink.create_selective_writer(attempt())
    refused = writer.write_accepted(pa.record_batch({"id": [0, 1, 2, 3], "text": texts}))
    assert [row.index for row in refused] == [0, 3]
    assert "ends in spaces" in refused[0].reason
    side.commit(list(writer.prepare_commit()))
    assert staging.execute("SELECT * FROM orders ORDER BY id") == [(1, texts[1]), (2, texts[2])]
    side.close()


def test_letters_that_sqlite_does_not_keep_in_utf16(tmp_path: Path) -> None:
    with sqlite_place(tmp_path) as place:
        with contextlib.closing(sqlite3.connect(str(sa.make_url(place.url).database))) as made:
            made.execute("PRAGMA encoding = 'UTF-16le'")
            made.execute("CREATE TABLE orders (id BIGINT, text TEXT)")
        sink = place.sink()
        side = committer(sink)
        texts = ["a\ufffe", "a\uffff", "a\ufffd😀", None]
        writer = sink.create_selective_writer(attempt())
        refused = writer.write_accepted(pa.record_batch({"id": [0, 1, 2, 3], "text": texts}))
        assert [row.index for row in refused] == [0, 1]
        side.commit(list(writer.prepare_commit()))
        assert place.execute("SELECT * FROM orders ORDER BY id") == [(2, texts[2]), (3, None)]
        side.close()


def test_what_tasks_cannot_ask_duckdb_is_refused_at_the_start(tmp_path: Path) -> None:
    with duckdb_place(tmp_path) as place:
        place.execute("CREATE TABLE orders (id BIGINT NOT NULL, text VARCHAR)")
        with pytest.raises(PreflightError, match=r"'id' is NOT NULL, and tasks cannot ask"):
            committer(place.sink())
        place.execute("CREATE OR REPLACE TABLE orders (id INTEGER, text VARCHAR)")
        with pytest.raises(PreflightError, match=r"'id' has type INTEGER, which would alter"):
            committer(place.sink())


def test_a_unique_index_of_duckdbs_is_a_key(tmp_path: Path) -> None:
    with duckdb_place(tmp_path) as place:
        place.execute('CREATE TABLE orders (id BIGINT, text VARCHAR, "a ""b" INTEGER)')
        sink = place.sink(mode="upsert", keys=["id"])
        place.execute("CREATE UNIQUE INDEX other ON orders ((id + 1))")
        place.execute('CREATE UNIQUE INDEX more ON orders (id, "a ""b")')
        with pytest.raises(PreflightError, match="no primary key or unique index"):
            committer(sink)
        place.execute("DROP INDEX other; DROP INDEX more; CREATE UNIQUE INDEX by_id ON orders (id)")
        side = committer(sink)
        for epoch in range(2):
            side.commit(write(sink, batch([1, 2, 1]), at=attempt(epoch=epoch)))
        assert place.execute("SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
        side.close()


def test_duckdb_takes_no_value_from_the_path(tmp_path: Path) -> None:
    directory = tmp_path / "text=7" / "a[1] b*{c}"
    directory.mkdir(parents=True)
    with duckdb_place(directory) as place:
        side = committer(place.sink())
        assert side.commit(write(place.sink(), batch([1, 2]))) == [CommitOutcome.COMMITTED]
        assert place.execute("SELECT text FROM orders ORDER BY id") == [("row 1",), ("row 2",)]


def test_another_process_has_duckdb_open(tmp_path: Path) -> None:
    """Then a commit is asked again, and other processes may read between two calls."""
    with duckdb_place(tmp_path) as place:
        sink = place.sink()
        side = committer(sink)
        committables = write(sink, batch([1, 2]))
        path = str(sink.database.file)
        with opened_elsewhere(place):
            assert answered(side.commit, committables, CommitOutcome.RETRY) == [CommitOutcome.RETRY]
        assert side.commit(committables) == [CommitOutcome.COMMITTED]
        seen = f"import duckdb; print(duckdb.connect({path!r}).sql('FROM orders').fetchall())"
        told = subprocess.run(
            [sys.executable, "-c", seen], capture_output=True, text=True, check=True
        )
        assert told.stdout == "[(1, 'row 1'), (2, 'row 2')]\n"


def test_an_engine_without_transactions_and_a_check_of_mariadb(
    mariadb: MariaDBServer,
) -> None:
    """PyMySQL has no kind of error for a CHECK."""
    with mariadb_place(mariadb) as place:
        place.execute("CREATE TABLE orders (id BIGINT, text TEXT) ENGINE=Aria")
        with pytest.raises(PreflightError, match="engine Aria, which has no transactions; ALTER"):
            committer(place.sink())
        place.execute("ALTER TABLE orders ENGINE=InnoDB, ADD CHECK (id <> 2)")
        side = committer(place.sink())
        committables = write(place.sink(), batch([1, 2]))
        with pytest.raises(CommitFailedError, match="cannot be made visible"):
            side.commit(committables)
        place.execute("ALTER TABLE orders DROP CONSTRAINT CONSTRAINT_1")
        assert side.commit(committables) == [CommitOutcome.COMMITTED]
