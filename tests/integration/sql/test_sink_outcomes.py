"""Races of two drivers: real committers in threads, started at one moment; and what is shown."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import PreCommitError
from seamark.sinks.sql import database
from seamark.sinks.sql.database import Session
from seamark.sinks.sql.tables import outcomes
from seamark.verify.conformance.steps import attempt, until_proved
from tests.chaos.driver import wait_until
from tests.integration.sql.sink_kit import (
    Place,
    batch,
    committer,
    context,
    sqlite_place,
    write,
)

COMMITTED, ALREADY = CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED


def test_of_two_commits_at_once_each_row_is_there_once(place: Place) -> None:
    sink = place.sink()
    sides = [committer(sink, 1), committer(sink, 2)]
    for epoch in range(10):
        items = [
            *write(sink, batch([2 * epoch]), at=attempt(epoch=epoch)),
            *write(sink, batch([2 * epoch + 1]), at=attempt(epoch=epoch, partition=1)),
        ]
        start, answers = threading.Barrier(2), list[Any]()

        def commit(side: Any, start=start, items=items, answers=answers) -> None:
            start.wait()
            answers.append(until_proved(side.commit, items))

        threads = [threading.Thread(target=commit, args=(side,)) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers, key=str) == [[ALREADY] * 2, [COMMITTED] * 2]
    assert place.visible() == list(range(20))
    assert place.staged() == 0


def test_a_commit_of_many_tasks_asks_the_database_little(tmp_path: Path) -> None:
    """Oracle takes 1,000 values in a list. The target is described once: nobody alters it while the
    commit writes to it."""
    with sqlite_place(tmp_path) as place:
        sink = place.sink()
        side = committer(sink)
        staged = [write(sink, batch([part]), at=attempt(partition=part))[0] for part in range(3)]
        asked = list[tuple[str, Any]]()
        sa.event.listen(
            sink.database.engine,
            "before_cursor_execute",
            lambda c, cursor, statement, parameters, *_: asked.append((statement, parameters)),
        )
        assert set(side.commit(staged)) == {COMMITTED}
        assert len([1 for statement, _ in asked if 'table_xinfo("orders")' in statement]) == 1
        many = [dataclasses.replace(c, handle=f"{c.handle}{n}") for c in staged for n in range(400)]
        found = Session(sink.database).run(lambda connection: outcomes(connection, staged + many))
        assert len(found) == 3
        assert max(len(parameters) for _, parameters in asked) < 1_000


def test_the_password_is_shown_nowhere(place: Place) -> None:
    sink = place.sink()
    shown = [repr(sink), sink.describe(), *sink.places, sink.database.shown]
    if place.server is not None and (secret := sink.database.url.password):
        wrong = place.sink(url=place.url.replace(f"@127.0.0.1:{place.server.port}", "@127.0.0.1:1"))
        shown += [str(finding) for finding in wrong.inspect(context())]
        assert not [text for text in shown if str(secret) in text or "s3cr3t" in text]
    assert all("\n" not in text for text in shown)


def test_a_call_that_was_left_behind_does_its_work_on_a_line_of_its_own(tmp_path: Path) -> None:
    """It came late to connect; by then its session has another line."""
    with sqlite_place(tmp_path) as place:
        database = place.sink(timeout="1s").database
        place.execute("CREATE TABLE orders (id BIGINT)")
        session, gate, seen = Session(database), threading.Event(), list[Any]()
        connect = database.connect

        def late() -> Any:
            gate.wait(60)
            return connect()

        database.connect = late  # type: ignore[method-assign]
        with pytest.raises(TimeoutError, match="not done within 1 s"):
            session.run(lambda connection: seen.append(("late", connection)))
        database.connect = connect  # type: ignore[method-assign]
        session.run(lambda connection: seen.append(("next", connection)))
        gate.set()
        wait_until("the first call to be done", lambda: len(seen) == 2, 60)
        session.run(lambda connection: seen.append(("last", connection)))
        found = dict(seen)
        assert found["last"] is found["next"]
        assert found["late"] is not found["next"]
        session.close()


def _cut_all(place: Place) -> None:
    """End every other connection to the server, as one that bounds idle sessions does."""
    if place.url.startswith("postgresql"):
        place.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return
    others = "SELECT id FROM information_schema.processlist WHERE id <> connection_id()"
    for (number,) in place.execute(f"{others} AND command = 'Sleep'"):
        place.execute(f"KILL {number}")


def test_connections_that_are_cut_while_idle_are_made_anew(
    served: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "IDLE_S", 0.0)
    sink = served.sink()
    at = committer(sink)
    for epoch in range(2):
        writer = sink.create_writer(attempt(epoch=epoch))
        for number in (1, 2):
            writer.write(batch([10 * epoch + number]))
            _cut_all(served)
        assert at.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
        _cut_all(served)
    assert served.visible() == [1, 2, 11, 12]


def test_a_database_that_was_set_back_between_two_batches_fails_the_attempt(
    served: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover: the rows would be found to be lost when they are decided."""
    monkeypatch.setattr(database, "IDLE_S", 0.0)
    sink = served.sink()
    committer(sink)
    writer = sink.create_writer(attempt())
    writer.write(batch([1]))
    (stage,) = served.stages()
    served.execute(f"DELETE FROM {stage}")
    writer.write(batch([2]))
    with pytest.raises(PreCommitError, match="has 1 of the 2 rows"):
        writer.prepare_commit()
