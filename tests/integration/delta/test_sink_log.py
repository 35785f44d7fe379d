"""DeltaSink's one log entry, against everything possible in between: other drivers, other writers,
compaction, VACUUM, ALTER, a cleaned log.

Real tables on a local disk. Where two drivers must meet between a look and a write, the other
driver's whole call runs at this very point.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import CommitFailedError
from seamark.model.schema import Column
from seamark.sinks.delta import DeltaSink
from seamark.sinks.internal import pending_files
from tests.integration.delta.sink_kit import (
    attempt,
    batch,
    driver,
    made,
    numbers,
    opened,
    rows,
)
from tests.two_drivers import (
    ABORTED,
    COMMITTED,
    TwoDrivers,
    TwoDriversSuite,
    at,
)


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return made(tmp_path / "orders")


def written(sink: DeltaSink, values: range, generation: int = 1, epoch: int = 0, p: int = 0) -> Any:
    writer = sink.create_writer(attempt(generation, epoch, p))
    writer.write(batch(values))
    (committable,) = writer.prepare_commit()
    return committable


def entries(sink: DeltaSink) -> list[list[dict[str, Any]]]:
    log = sorted(Path(sink.path, "_delta_log").glob("0*.json"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in log]


def data_files(sink: DeltaSink) -> list[Path]:
    return sorted(Path(sink.path).rglob("*.parquet"))


class TestTwoDrivers(TwoDriversSuite):
    """A commit and an abort, or two commits, that meet."""

    @pytest.fixture
    def two(self, sink: DeltaSink) -> TwoDrivers:
        return TwoDrivers(
            "delta",
            lambda generation: sink.create_committer(driver(generation)),
            partial(written, sink),
            lambda: data_files(sink),
            lambda: numbers(sink),
            ("delta-commit-checked",),
        )


def test_an_epoch_is_one_version_with_its_application_transaction(sink: DeltaSink) -> None:
    committer = sink.create_committer(driver())
    parts = [written(sink, range(10 * p, 10 * p + 10), epoch=7, p=p) for p in range(3)]
    assert committer.commit(parts) == [COMMITTED] * 3
    assert opened(sink).version() == 1
    *adds, transaction = entries(sink)[1][1:]
    assert [list(action) for action in adds] == [["add"]] * 3
    app_id = "seamark:c0ffee00c0ffee00:orders-out"
    assert transaction == {"txn": {"appId": app_id, "version": 7}}
    assert opened(sink).transaction_version(app_id) == 7
    assert not list(Path(sink.path, "_seamark").rglob("*.json"))


def test_a_committed_epoch_is_known_after_compaction_and_vacuum(sink: DeltaSink) -> None:
    """Its reply was lost, and its files are no longer the table's, nor anywhere."""
    parts = [written(sink, range(10 * p, 10 * p + 10), p=p) for p in range(2)]
    assert sink.create_committer(driver()).commit(parts) == [COMMITTED] * 2
    before = data_files(sink)
    table = opened(sink)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not set(before) & set(data_files(sink))
    assert sink.create_committer(driver(2)).commit(parts) == [CommitOutcome.ALREADY_COMMITTED] * 2
    assert sink.create_committer(driver(2)).abort(parts) == [AbortOutcome.COMMITTED] * 2
    assert sorted(numbers(sink)) == list(range(20))


def test_other_writers_at_that_very_moment_are_no_conflict(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job's append, a compaction, and a new nullable column."""
    committer = sink.create_committer(driver())
    calls = [
        lambda: append(sink, range(100, 110)),
        lambda: opened(sink).optimize.compact(),
        lambda: opened(sink).alter.add_columns([Field("more", PrimitiveType("long"))]),
        lambda: made_commit(sink, "other-out", range(200, 210)),
    ]  # fmt: skip
    for epoch, call in enumerate(calls):
        at("delta-commit-checked", call, monkeypatch)
        part = written(sink, range(10 * epoch, 10 * epoch + 10), epoch=epoch)
        assert committer.commit([part]) == [COMMITTED]
    found = [row["id"] for row in rows(sink)]
    assert sorted(found) == [*range(40), *range(100, 110), *range(200, 210)]


def append(sink: DeltaSink, values: range) -> None:
    """Like another program, without knowledge of Seamark."""
    write_deltalake(sink.path, pa.Table.from_batches([batch(values)]), mode="append")


def made_commit(sink: DeltaSink, uid: str, values: range) -> None:
    writer = sink.create_writer(attempt(uid=uid))
    writer.write(batch(values))
    assert sink.create_committer(driver(uid=uid)).commit(writer.prepare_commit()) == [COMMITTED]


def test_a_table_that_was_altered_under_the_job_is_said(sink: DeltaSink) -> None:
    committer = sink.create_committer(driver())
    committer.preflight()
    committable = written(sink, range(10))
    opened(sink).alter.add_constraint({"few": "id < 5"})
    with pytest.raises(CommitFailedError, match=r"CHECK constraint .* altered while the job ran"):
        committer.commit([committable])
    opened(sink).alter.drop_constraint("few")
    assert committer.commit([committable]) == [COMMITTED]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_table_made_again_with_a_longer_log_is_looked_at_anew(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    sink = dataclasses.replace(made(tmp_path / "orders"), keys=keys)
    columns = (Column("id", "bigint"), Column("part", "string"), Column("text", "string"))
    committer = sink.create_committer(driver(schema=columns))
    committer.preflight()
    assert committer.commit([written(sink, range(10))]) == [COMMITTED]
    shutil.rmtree(sink.path)
    theirs = pa.table({"id": ["a"], "part": ["b"], "text": ["c"]})
    for _ in range(5):
        write_deltalake(sink.path, theirs, mode="append")
    with pytest.raises(CommitFailedError, match=r"'id' is bigint .* string in the table"):
        committer.commit([written(sink, range(10, 20), epoch=1)])
    assert opened(sink).to_pyarrow_table().num_rows == 5


def test_vacuum_spares_what_is_pending_until_its_retention_is_over(sink: DeltaSink) -> None:
    committer = sink.create_committer(driver())
    first, second = written(sink, range(10)), written(sink, range(10, 20), epoch=1)
    opened(sink).vacuum(dry_run=False, full=True)
    assert committer.commit([first]) == [COMMITTED]
    opened(sink).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(list(committer.list_lingering())) == 1  # VACUUM does not look into _seamark
    assert committer.commit([second]) == [CommitOutcome.LOST]
    assert sorted(numbers(sink)) == list(range(10))


def test_a_log_that_was_cleaned_up_proves_nothing(
    sink: DeltaSink, caplog: pytest.LogCaptureFixture
) -> None:
    committable = written(sink, range(10))
    committer = sink.create_committer(driver())
    append(sink, range(10, 20))
    opened(sink).create_checkpoint()
    Path(sink.path, f"_delta_log/{0:020}.json").unlink()
    append(sink, range(20, 30))
    assert committer.commit([committable]) == [CommitOutcome.UNKNOWN]
    assert "have been cleaned up" in caplog.text
    # Files named by the table are committed all the same, and never deleted.
    named = written(sink, range(30, 40), epoch=2)
    assert committer.commit([named]) == [COMMITTED]
    old = dataclasses.replace(named, log_version=0)
    append(sink, range(50, 60))
    opened(sink).create_checkpoint()
    for version in (1, 2, 3):
        Path(sink.path, f"_delta_log/{version:020}.json").unlink()
    late = sink.create_committer(driver(2))
    assert late.abort([old]) == [AbortOutcome.COMMITTED]
    assert late.commit([old]) == [CommitOutcome.ALREADY_COMMITTED]
    assert set(range(30, 40)) < set(numbers(sink))
    # Later writes are not concerned.
    assert committer.commit([written(sink, range(5), epoch=1)]) == [COMMITTED]


def test_a_log_without_its_hint_is_known_from_the_attempt_on(sink: DeltaSink) -> None:
    """Another engine may have cleaned up old entries, and written no `_last_checkpoint`."""
    committer = sink.create_committer(driver())
    for start in (0, 10, 20):
        append(sink, range(start, start + 10))
    opened(sink).create_checkpoint()
    log = Path(sink.path, "_delta_log")
    for name in (f"{0:020}.json", f"{1:020}.json", "_last_checkpoint"):
        (log / name).unlink()
    committable = written(sink, range(30, 40))
    assert committer.commit([committable]) == [COMMITTED]
    assert sorted(numbers(sink)) == list(range(40))
    late = sink.create_committer(driver(2))
    assert late.commit([committable]) == [CommitOutcome.ALREADY_COMMITTED]


def test_a_torn_record_of_a_pending_file_stops_nothing(sink: DeltaSink) -> None:
    """Records are not fsynced: the machine may end before one is on the disk."""
    writer = sink.create_writer(attempt())
    writer.write(batch(range(10)))
    (record,) = Path(sink.path, pending_files.DIRECTORY).rglob("*.json")
    record.write_bytes(b"")
    committer = sink.create_committer(driver(2))
    (left,) = committer.list_lingering()
    assert committer.abort([left.committable]) == [ABORTED]
    assert list(committer.list_lingering()) == []


def test_each_checkpoint_of_the_log_moves_on_what_is_read(sink: DeltaSink) -> None:
    """A committer reads entries once, and from the log's last checkpoint only."""
    opened(sink).alter.set_table_properties({"delta.checkpointInterval": "2"})
    committer = sink.create_committer(driver())
    for epoch in range(6):
        part = written(sink, range(10 * epoch, 10 * epoch + 10), epoch=epoch)
        assert committer.commit([part]) == [COMMITTED]
    assert part.log_version >= 4
    assert len(committer._ledger._entries) <= 2
    fresh = sink.create_committer(driver(2))
    assert fresh.commit([part]) == [CommitOutcome.ALREADY_COMMITTED]
    assert sorted(numbers(sink)) == list(range(60))


def test_a_table_that_is_dropped_and_made_anew_takes_new_rows(sink: DeltaSink) -> None:
    import shutil

    committer = sink.create_committer(driver())
    for epoch in range(3):
        assert committer.commit([written(sink, range(5), epoch=epoch)]) == [COMMITTED]
    shutil.rmtree(sink.path)
    made(sink.path)
    DeltaTable(sink.path)
    fresh = sink.create_committer(driver(2))
    assert fresh.commit([written(sink, range(7), epoch=3)]) == [COMMITTED]
    assert sorted(numbers(sink)) == list(range(7))
