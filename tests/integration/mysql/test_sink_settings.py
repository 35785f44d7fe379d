"""What the server's settings, other indexes and triggers do to a sink's rows; and TLS.

How: on MariaDB and on MySQL 8.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from pymysql.err import OperationalError

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, PreflightError
from seamark.model.schema import Column
from seamark.sinks.mysql import preflight
from seamark.verify.conformance.steps import attempt
from tests.integration.kafka.sink_kit import until_proved
from tests.integration.mysql.conftest import fresh_database, of_new_sessions, serving
from tests.integration.mysql.sink_kit import Target, batch, context, target_on
from tests.servers.mariadb import MariaDBServer

DONE = [CommitOutcome.COMMITTED]


@pytest.fixture(params=["mariadb", "mysql8"])
def server(request: pytest.FixtureRequest) -> MariaDBServer:
    found: MariaDBServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: MariaDBServer) -> Iterator[str]:
    with fresh_database(server) as name:
        yield name


@pytest.mark.parametrize("mode", ["xa", "staged", "upsert", "changes"])
@pytest.mark.parametrize("which", ["cut short", "serializable", "timed", "no copy"])
def test_settings_of_new_sessions(
    server: MariaDBServer, database: str, mode: str, which: str
) -> None:
    """They would show a part of a table, refuse a delete or a stage's CHECKs, or begin and chain
    transactions."""
    target = target_on(server, database, mode)
    target.execute("ALTER TABLE orders ADD CHECK (id < 100)")
    with of_new_sessions(server, which):
        committer = target.committer()
        for epoch in range(2):
            rows = batch([3 * epoch + 1, 3 * epoch + 2])
            if mode == "changes":
                ops = pa.array([["insert"], ["delete", "update"]][epoch] * (2 - epoch))
                rows = batch([1, 2]).append_column("op", ops)
            writer = target.sink.create_writer(attempt(epoch=epoch))
            writer.write(rows)
            assert until_proved(committer.commit, writer.prepare_commit()) == DONE
        committer.close()
    assert target.visible() == ([2] if mode == "changes" else [1, 2, 4, 5])
    assert set(target.ledger().values()) == {"committed"}
    assert target.stages() == []


@pytest.mark.parametrize("mode", ["xa", "staged"])
def test_a_writer_may_wait_for_its_rows(server: MariaDBServer, database: str, mode: str) -> None:
    """A server may close the connections of those that ask nothing for a while."""
    target = target_on(server, database, mode)
    with of_new_sessions(server, "idle"):
        writer = target.sink.create_writer(attempt())
        writer.write(batch([1]))
        time.sleep(2.5)
        writer.write(batch([2]))
        committables = writer.prepare_commit()
    committer = target.committer()
    assert until_proved(committer.commit, committables) == DONE
    assert target.visible() == [1, 2]


def require_stopped(target: Target, row: int, number: str, remedy: str) -> None:
    """Assert that a decided row stops the job by this error of the server's, and is committed once
    the remedy is executed."""
    committer, staged = target.committer(), target.write([row])
    with pytest.raises(CommitFailedError, match=rf"cannot be made visible: \({number}"):
        committer.commit(staged)
    target.execute(remedy)
    assert list(committer.commit(staged)) == DONE
    assert target.visible() == [row]


@pytest.mark.parametrize(
    "trigger",
    [
        ("CREATE DEFINER=gone@'%' TRIGGER t BEFORE INSERT ON orders FOR EACH ROW DO 1", r"1449"),
        ("CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW DELETE FROM orders", r"1442"),
        ("CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW SIGNAL SQLSTATE '02000'", r"1643"),
        (
            "CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW "
            "SET NEW.text = (SELECT 1 UNION SELECT 2)",
            r"1242",
        ),
        (
            "CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW "
            "CASE NEW.id WHEN 2 THEN DO 1; END CASE",
            r"1339",
        ),
    ],
)
def test_a_trigger_that_cannot_run_stops_the_job_at_once(
    server: MariaDBServer, database: str, trigger: tuple[str, str]
) -> None:
    target = target_on(server, database, "staged")
    target.execute("CREATE USER gone@'%'")
    target.execute("GRANT ALL ON *.* TO gone@'%'")
    target.execute(trigger[0])
    target.execute("DROP USER gone@'%'")
    require_stopped(target, 1, trigger[1], "DROP TRIGGER t")


def test_a_row_at_which_a_generated_column_fails_stops_the_job_at_once(
    server: MariaDBServer, database: str
) -> None:
    target = target_on(server, database, "staged")
    target.execute("ALTER TABLE orders ADD inverse DOUBLE AS (1 / id) STORED")
    require_stopped(target, 0, "1365", "ALTER TABLE orders DROP inverse")


def test_a_row_at_which_a_pattern_fails_stops_the_job_at_once(mysql8: MariaDBServer) -> None:
    """MariaDB warns."""
    with fresh_database(mysql8) as database:
        target = target_on(mysql8, database, "staged")
        target.execute(
            "ALTER TABLE orders ADD r TEXT AS (REGEXP_REPLACE('[', IF(id, 'a', '['), '')) STORED"
        )
        require_stopped(target, 0, "3696", "ALTER TABLE orders DROP r")


@pytest.mark.parametrize("mode", ["staged", "upsert", "changes"])
def test_a_server_may_ask_for_keys_of_all_tables(
    server: MariaDBServer, database: str, mode: str
) -> None:
    target = target_on(server, database, mode, key=True)
    target.execute("ALTER TABLE orders MODIFY id BIGINT AUTO_INCREMENT")
    maria = "MariaDB" in server.execute("SELECT @@version")[0][0]
    setting = "innodb_force_primary_key" if maria else "sql_require_primary_key"
    server.execute(f"SET GLOBAL {setting}=1")
    try:
        committer = target.committer()
        writer = target.sink.create_writer(attempt())
        for numbers in ([3, 1], [2]):
            rows = batch(numbers)
            ops = pa.array(["insert"] * len(numbers))
            writer.write(rows.append_column("op", ops) if mode == "changes" else rows)
        assert list(committer.commit(writer.prepare_commit())) == DONE
    finally:
        server.execute(f"SET GLOBAL {setting}=0")
    assert target.visible() == [1, 2, 3]


def test_the_keys_of_a_versioned_table(mariadb: MariaDBServer) -> None:
    """MariaDB has the end of a row's time in each of its indexes, and upserts into no table whose
    rows may not overlap in time."""
    if "MariaDB" not in mariadb.execute("SELECT VERSION()")[0][0]:
        pytest.skip("MySQL has no versioned tables")
    with fresh_database(mariadb) as database:
        target = target_on(mariadb, database, "upsert")
        target.execute(
            "ALTER TABLE orders ADD a TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
            "ADD b TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
            "ADD PERIOD FOR SYSTEM_TIME(a, b), ADD SYSTEM VERSIONING"
        )
        committer = target.committer()
        assert list(committer.commit(target.write([1]))) == DONE
        assert list(committer.commit(target.write([1, 2], attempt(epoch=1)))) == DONE
        assert target.visible() == [1, 2]
        target.execute("DROP TABLE orders")
        target.execute(
            "CREATE TABLE orders (id BIGINT, text LONGTEXT, a DATE, b DATE, PERIOD FOR p (a, b), "
            "PRIMARY KEY (id, p WITHOUT OVERLAPS))"
        )
        schema = (Column("id", "bigint"), Column("a", "date"), Column("b", "date"))
        sink = dataclasses.replace(target.sink, keys=["id", "a", "b"])
        with pytest.raises(PreflightError, match="doesn't yet support 'WITHOUT OVERLAPS'"):
            sink.create_committer(context(schema=schema)).preflight()


@pytest.mark.parametrize("mode", ["staged", "upsert"])
def test_a_default_by_a_column_that_the_stage_lacks_is_said_at_the_start(
    server: MariaDBServer, database: str, mode: str
) -> None:
    target = target_on(server, database, mode)
    target.execute("ALTER TABLE orders ADD a INT, MODIFY text VARCHAR(99) DEFAULT (CONCAT(a, 'x'))")
    with pytest.raises(PreflightError, match=r"(?i)unknown column 'a' in .*default"):
        target.committer()


def test_only_rows_that_cannot_meet_have_a_second_unique_index(
    server: MariaDBServer, database: str
) -> None:
    """In one with a column that is not written they meet, unless it is NULL or a new number."""
    target = target_on(server, database, "upsert")
    target.execute("ALTER TABLE orders MODIFY text VARCHAR(9), ADD n INT AUTO_INCREMENT UNIQUE")
    for more in ("INT DEFAULT 7", "VARCHAR(9) DEFAULT 'NULL'", "INT AS (length(text)) VIRTUAL"):
        target.execute(f"ALTER TABLE orders ADD more {more}, ADD UNIQUE u (text, more)")
        with pytest.raises(PreflightError, match=r"second unique index, u on \(text, more\)"):
            target.committer()
        target.execute("ALTER TABLE orders DROP INDEX u, DROP more")
    target.execute("ALTER TABLE orders ADD more INT, ADD UNIQUE u (text, more)")
    committer = target.committer()
    for epoch in range(2):
        rows = batch([epoch]).set_column(1, "text", pa.array(["same"]))
        writer = target.sink.create_writer(attempt(epoch=epoch))
        writer.write(rows)
        assert list(committer.commit(writer.prepare_commit())) == DONE
    assert target.visible() == [0, 1]


def test_the_table_is_described_once_a_transaction(
    mariadb: MariaDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_database(mariadb) as database:
        target = target_on(mariadb, database, "upsert")
        committer = target.committer()
        staged = [*target.write([1]), *target.write([2], attempt(partition=1))]
        asked: list[object] = []
        ask = preflight.ask_table
        monkeypatch.setattr(preflight, "ask_table", lambda *a: asked.append(a) or ask(*a))
        assert list(committer.commit(staged)) == DONE * 2
        assert len(asked) == 1


def test_an_authority_in_the_url_must_have_signed_the_server(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    made.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    files = {f"ssl-{name}": str(tmp_path / f"server.{end}") for name, end in
             (("cert", "pem"), ("key", "key"))}  # fmt: skip
    with serving("mariadb", {"ssl": "1", **files}) as server:
        target = target_on(server, "test", "staged")

        def start(options: str) -> None:
            url = f"{target.sink.url}?{options}"
            sink = dataclasses.replace(target.sink, url=url)
            sink.create_committer(context()).preflight()

        start(f"ssl_ca={tmp_path / 'ca.pem'}")
        start(f"ssl_ca={tmp_path / 'other.pem'}&ssl_verify_cert=false")
        for more in ("", "&ssl_verify_identity=true"):
            with pytest.raises(PreflightError, match="certificate verify failed"):
                start(f"ssl_ca={tmp_path / 'other.pem'}{more}")


@pytest.mark.parametrize("mode", ["staged", "upsert"])
def test_a_server_that_makes_tables_of_another_engine(mariadb: MariaDBServer, mode: str) -> None:
    """A stage in such an engine may be torn after a crash, when its rows are decided."""
    with fresh_database(mariadb) as database:
        target = target_on(mariadb, database, mode)
        target.committer().close()
        mariadb.execute("SET GLOBAL enforce_storage_engine=Aria")
        try:
            with pytest.raises(PreflightError, match="NO_ENGINE_SUBSTITUTION"):
                target.committer()
            with pytest.raises(OperationalError, match="NO_ENGINE_SUBSTITUTION"):
                target.write([1])
        finally:
            mariadb.execute("SET GLOBAL enforce_storage_engine=NULL")
        assert target.stages() == []
