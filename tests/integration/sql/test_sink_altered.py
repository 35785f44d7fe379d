"""A table altered while the job runs: no row is rounded or merged by another key. It is refused
with its reason, and the table takes the rows whole once it is altered back."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from seamark.model.errors import CommitFailedError, WriteRefusedError
from seamark.model.schema import Column, Schema
from tests.integration.sql.sink_kit import Place, committer, write

SCHEMA: Schema = (
    Column("id", "bigint"), Column("amount", "decimal(10,2)"), Column("name", "string"),
)  # fmt: skip
ROW = (2**53 + 1, Decimal("1.25"), "a")
ROWS = pa.record_batch(
    {"id": [ROW[0]], "amount": pa.array([ROW[1]], pa.decimal128(10, 2)), "name": [ROW[2]]}
)
COLUMNS = {"id": "BIGINT", "amount": "DECIMAL(10,2)", "name": "VARCHAR(99)"}
HARMFUL = {
    "fewer digits": {"amount": "DECIMAL(10,1)"},
    "whole numbers": {"amount": "BIGINT"},
    "floating point": {"id": "DOUBLE PRECISION"},
}
MODES = {"staged": [], "upsert": ["name"]}


def make(place: Place, keys: list[str], **columns: str) -> None:
    """Make the table anew: SQLite alters no column."""
    declared = {**COLUMNS, **columns}
    if place.url.startswith("sqlite"):  # has no decimals
        declared["amount"] = {"DECIMAL(10,2)": "TEXT"}.get(declared["amount"], declared["amount"])
    if place.url.startswith("mariadb"):
        declared["name"] += " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    listed = ", ".join(f"{name} {kind}" for name, kind in declared.items())
    key = f", PRIMARY KEY ({', '.join(keys)})" if keys else ""
    place.execute("DROP TABLE IF EXISTS {}orders")
    place.execute(f"CREATE TABLE {{}}orders ({listed}{key})")


def found(place: Place) -> list[tuple[int, Decimal, str]]:
    rows = place.execute("SELECT id, amount, name FROM {}orders")
    return [(number, Decimal(amount), name) for number, amount, name in rows]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", HARMFUL)
def test_staged_rows_wait_until_the_table_is_altered_back(
    place: Place, mode: str, how: str
) -> None:
    keys = MODES[mode]
    make(place, keys)
    sink = place.sink(mode=mode, keys=keys)
    side = committer(sink, schema=SCHEMA)
    staged = write(sink, ROWS)
    make(place, keys, **HARMFUL[how])
    with pytest.raises(CommitFailedError, match=r"would alter values .* altered while the job ran"):
        side.commit(staged)
    assert found(place) == []
    make(place, keys)
    assert [outcome.name for outcome in side.commit(staged)] == ["COMMITTED"]
    assert found(place) == [ROW]
    side.close()


@pytest.mark.parametrize("how", HARMFUL)
def test_rows_of_an_altered_table_are_refused_whole(staging: Place, how: str) -> None:
    make(staging, [])
    sink = staging.sink()
    side = committer(sink, schema=SCHEMA)
    make(staging, [], **HARMFUL[how])
    with pytest.raises(WriteRefusedError, match=r"altered while the job ran"):
        write(sink, ROWS)
    make(staging, [])
    side.commit(write(sink, ROWS))
    assert found(staging) == [ROW]
    side.close()


def test_a_wider_table_takes_what_was_staged_before(place: Place) -> None:
    make(place, [])
    sink = place.sink()
    side = committer(sink, schema=SCHEMA)
    staged = write(sink, ROWS)
    make(place, [], amount="DECIMAL(20,2)" if "sqlite" not in place.url else "TEXT")
    place.execute("ALTER TABLE {}orders ADD note VARCHAR(9) DEFAULT 'new'")
    side.commit(staged)
    assert found(place) == [ROW]
    side.close()


def test_an_engine_without_transactions_gets_no_rows(place: Place) -> None:
    if not place.url.startswith("mariadb"):
        pytest.skip("only MySQL and MariaDB have engines")
    make(place, [])
    sink = place.sink()
    side = committer(sink, schema=SCHEMA)
    staged = write(sink, ROWS)
    place.execute("ALTER TABLE orders ENGINE=MyISAM")
    with pytest.raises(WriteRefusedError, match=r"has the engine MyISAM now.*ENGINE=InnoDB"):
        write(sink, ROWS)
    with pytest.raises(CommitFailedError, match=r"has the engine MyISAM now.*ENGINE=InnoDB"):
        side.commit(staged)
    assert found(place) == []
    place.execute("ALTER TABLE orders ENGINE=InnoDB")
    assert [outcome.name for outcome in side.commit(staged)] == ["COMMITTED"]
    assert found(place) == [ROW]
    side.close()


def test_a_zero_asks_mariadb_for_no_number(place: Place) -> None:
    if not place.url.startswith("mariadb"):
        pytest.skip("MySQL and MariaDB number rows that have a zero")
    place.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(99))")
    sink = place.sink()
    side = committer(sink, schema=(SCHEMA[0], SCHEMA[2]))
    side.commit(write(sink, pa.record_batch({"id": [0, 5], "name": ["zero", "five"]})))
    assert place.execute("SELECT id, name FROM orders ORDER BY id") == [(0, "zero"), (5, "five")]
    side.close()
