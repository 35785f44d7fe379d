"""Rows refused or altered by MariaDB, and the fate of them and their neighbours.

How: a real server and tables with each kind of constraint; writers with rows set aside. The suite
for such writers is in `test_sink_conformance.py`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError
from seamark.sinks.mysql import MySQLSink
from seamark.verify.conformance.steps import attempt
from tests.integration.mysql import sink_kit as kit
from tests.servers.mariadb import MariaDBServer

KINDS: dict[str, tuple[str, Any, str]] = {
    # a column's definition, a refused value, a pattern of the reason
    "length": ("VARCHAR(3)", "four", "truncated"),
    "range": ("TINYINT UNSIGNED", 300, "Out of range"),
    "digits": ("DECIMAL(5,2)", Decimal("1.255"), "truncated"),
    "date": ("DATE", 2_932_897, "Incorrect date|truncated|Out of range"),  # of the year 10000
    "not null": ("VARCHAR(9) NOT NULL", None, "null"),
    "check": ("VARCHAR(9) CHECK (value <> 'it''s bad')", "it's bad", "value` failed|is violated"),
    "json": ("JSON", "{", "CONSTRAINT|Invalid JSON"),
    "depth": ("JSON", "[" * 200 + "]" * 200, "CONSTRAINT|maximum depth"),
}
GOOD = {"range": 1, "digits": Decimal("1.250"), "date": 1, "json": "{}", "depth": "{}"}
ARROW = {"range": pa.int64(), "digits": pa.decimal128(9, 3), "date": pa.date32()}


def selective(target: kit.Target) -> Any:
    ready(target).close()
    return target.sink.create_selective_writer(attempt())


def ready(target: kit.Target) -> Any:
    committer = target.sink.create_committer(kit.context(schema=()))
    committer.preflight()
    return committer


def sink_on(server: MariaDBServer, database: str, mode: str) -> kit.Target:
    return kit.Target(server, database, MySQLSink(server.url(database=database), "orders", mode))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["xa", "staged"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_value_is_set_aside(
    mariadb: MariaDBServer, database: str, mode: str, kind: str
) -> None:
    definition, bad, reason = KINDS[kind]
    version = mariadb.execute("SELECT @@version")[0][0]
    if (kind, mode) == ("check", "staged") and "mariadb" not in version.lower():
        pytest.skip("on MySQL the CHECKs of staged rows stop the job, as docs/dead-letters.md says")
    target = sink_on(mariadb, database, mode)
    target.execute(f"CREATE TABLE orders (id BIGINT, value {definition})")
    writer = selective(target)
    values = [GOOD.get(kind, "ok")] * 30
    values[17] = bad
    of_kind = ARROW.get(kind, pa.string())
    batch = pa.record_batch({"id": range(30), "value": pa.array(values, of_kind)})
    (refused,) = writer.write_accepted(batch)
    assert refused.index == 17
    assert re.search(reason, refused.reason, re.IGNORECASE)
    assert ready(target).commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    assert target.visible() == [i for i in range(30) if i != 17]


@pytest.mark.parametrize("local_infile", [1, 0])
def test_keys_infinity_and_size_refuse_in_xa_mode(
    mariadb: MariaDBServer, database: str, local_infile: int
) -> None:
    target = sink_on(mariadb, database, "xa")
    target.execute("CREATE TABLE parents (id BIGINT PRIMARY KEY)")
    target.execute("INSERT INTO parents VALUES (0), (1), (2), (3), (4), (5)")
    target.execute(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, number DOUBLE, text LONGTEXT, "
        "FOREIGN KEY (id) REFERENCES parents (id))"
    )
    target.execute("INSERT INTO orders VALUES (0, 0, '')")
    writer = selective(target)
    ((packet,),) = target.execute("SELECT @@max_allowed_packet")
    target.execute(f"SET GLOBAL local_infile = {local_infile}")
    try:
        batch = pa.record_batch(
            {
                "id": [1, 0, 2, 9, 1, 3, 4, 5],
                "number": [0.5, 0.5, float("inf"), 0.5, 0.5, 0.5, float("nan"), 0.5],
                "text": ["", "", "", "", "", "x" * (packet + 1), "", "y" * 2_000_000],
            }
        )
        reasons = {row.index: row.reason for row in writer.write_accepted(batch)}
    finally:
        target.execute("SET GLOBAL local_infile = 1")
    large = [] if local_infile else [5]  # LOAD DATA has no such limit
    assert list(reasons) == [1, 2, 3, 4, *large]
    assert "Duplicate entry '0'" in reasons[1]
    assert "infinite" in reasons[2]
    assert "foreign key" in reasons[3]
    assert "Duplicate entry '1'" in reasons[4]
    assert all("max_allowed_packet" in reasons[i] for i in large)
    assert ready(target).commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    assert target.execute("SELECT id, length(text) FROM orders ORDER BY id") == [
        (0, 0), (1, 0), *([] if large else [(3, packet + 1)]), (4, 0), (5, 2_000_000),
    ]  # fmt: skip


def test_a_key_that_is_in_the_table_still_stops_a_staged_commit(
    mariadb: MariaDBServer, database: str
) -> None:
    """The documented limit: staged rows meet the table's keys after the decision."""
    target = sink_on(mariadb, database, "staged")
    target.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, text LONGTEXT)")
    target.execute("INSERT INTO orders VALUES (1, 'was here')")
    writer = selective(target)
    assert writer.write_accepted(kit.batch([1])) == []
    with pytest.raises(CommitFailedError, match="Duplicate entry '1'"):
        ready(target).commit(writer.prepare_commit())


def test_refused_rows_alone_leave_no_stage(mariadb: MariaDBServer, database: str) -> None:
    target = sink_on(mariadb, database, "staged")
    target.execute("CREATE TABLE orders (id BIGINT, text VARCHAR(1))")
    writer = selective(target)
    assert len(writer.write_accepted(kit.batch([1, 2]))) == 2
    assert len(target.stages()) == 1
    assert writer.prepare_commit() == []
    assert target.stages() == []
