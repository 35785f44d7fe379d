"""Every call to a location's store fails once, before its effect or after it: each row is in the
sink once all the same, and nothing stays open.

How: the workers of a query are played on real files and SQLite; after an error Spark runs the batch
again, in new workers.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seamark.datasource import location
from tests.unit.datasource.played import IDS, Query

BATCHES = 3


class Faulty:
    """A directory whose call number `at`, over all directories of a run, fails."""

    calls = 0
    at = 0
    after = False

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            Faulty.calls += 1
            fails = Faulty.calls == Faulty.at
            if fails and not Faulty.after:
                raise OSError(f"the store is away: {name}{arguments}")
            result = found(*arguments, **named)
            if fails:
                raise OSError(f"the answer is lost: {name}{arguments}")
            return result

        return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_each_call_fails_once(after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = location.open_for_rows
    monkeypatch.setattr(location, "open_for_rows", lambda *given: Faulty(opened(*given)))
    number, calls, failed = 0, 0, 0
    while number <= calls:
        number += 1
        Faulty.calls, Faulty.at, Faulty.after = 0, number, after
        seen, calls = run(tmp_path / str(number))
        failed += seen
    assert number > 20
    assert failed > 10


def run(at: Path) -> tuple[bool, int]:
    """Run the batches to their end; return whether Spark has seen an error, and the calls."""
    query = Query(sink="sqlite", path=f"{at}/t.db", table="t", location=f"{at}/location")
    at.mkdir()
    failed, batch = False, 0
    while batch < BATCHES:
        try:
            query.run(batch, 2 * batch, 2 * batch + 1)
        except Exception:
            assert not failed, "one call alone has failed"
            failed = True
            query.end_spark()
        else:
            batch += 1
    calls, Faulty.at = Faulty.calls, 0
    query.end_spark()
    query.plan(IDS)
    with sqlite3.connect(at / "t.db") as database:
        found = Counter(row[0] for row in database.execute("SELECT id FROM t"))
    assert found == Counter(range(2 * BATCHES)), at
    assert query.committing().open_transactions() == []
    query.end_spark()
    return failed, calls
