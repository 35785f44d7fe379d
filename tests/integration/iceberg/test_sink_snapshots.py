"""IcebergSink's one snapshot, against everything possible in between: other drivers, other writers,
compaction, expiry, ALTER, lost answers.

Real tables on a local disk, in an SQLite catalog. Where two drivers must meet between a look and a
commit, the other driver's whole call runs at this very point.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetLocationUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import CommitFailedError, PreflightError, WriteRefusedError
from seamark.model.schema import Column
from seamark.sinks.iceberg import IcebergSink, snapshots
from seamark.sinks.iceberg.ledger import KEPT, PROPERTY
from seamark.verify.conformance.steps import in_child, until_proved
from tests.integration.iceberg.sink_kit import (
    attempt,
    batch,
    catalog_at,
    compact,
    driver,
    expire_all,
    made,
    numbers,
    opened,
)
from tests.two_drivers import (
    ABORTED,
    ALREADY,
    COMMITTED,
    TwoDrivers,
    TwoDriversSuite,
    at,
)


@pytest.fixture
def sink(tmp_path: Path) -> IcebergSink:
    return made(catalog_at(tmp_path))


def written(
    sink: IcebergSink, values: range, generation: int = 1, epoch: int = 0, p: int = 0
) -> Any:
    writer = sink.create_writer(attempt(generation, epoch, p))
    writer.write(batch(values))
    (committable,) = writer.prepare_commit()
    return committable


def append(sink: IcebergSink, values: range) -> None:
    """Like another program, without knowledge of Seamark."""
    table = opened(sink)
    columns = [name for name in table.schema().column_names if name in batch([]).schema.names]
    table.append(pa.Table.from_batches([batch(values)]).select(columns))


def data_files(sink: IcebergSink) -> set[str]:
    location = opened(sink).location().removeprefix("file://")
    return {path.name for path in Path(location, "data").glob("*.parquet")}


def ids(sink: IcebergSink) -> list[int]:
    return sorted(opened(sink).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


class TestTwoDrivers(TwoDriversSuite):
    """A commit and an abort, or two commits, that meet."""

    @pytest.fixture
    def two(self, sink: IcebergSink) -> TwoDrivers:
        return TwoDrivers(
            "iceberg",
            lambda generation: sink.create_committer(driver(generation)),
            partial(written, sink),
            lambda: data_files(sink),
            lambda: numbers(sink),
            ("iceberg-commit-checked", "iceberg-manifests-written"),
        )


def test_an_epoch_is_one_snapshot_that_says_whose_it_is(sink: IcebergSink) -> None:
    committer = sink.create_committer(driver())
    parts = [written(sink, range(10 * p, 10 * p + 10), epoch=7, p=p) for p in range(3)]
    assert committer.commit(parts) == [COMMITTED] * 3
    table = opened(sink)
    (snapshot,) = table.snapshots()
    told = snapshot.summary.additional_properties
    tokens = [part.handle.rpartition("-")[2] for part in parts]
    assert (told["seamark.sink"], told["seamark.epoch"]) == ("c0ffee00c0ffee00/orders-out", "7")
    assert told["seamark.committed"].split() == tokens
    assert (told["added-data-files"], told["total-records"]) == ("3", "30")
    value = json.loads(table.properties[PROPERTY + "c0ffee00c0ffee00/orders-out"])
    assert value == {"since": 0, "commits": [[1, "committed", tokens]]}
    assert not list(Path(table.location().removeprefix("file://"), "_seamark").rglob("*.json"))


@pytest.mark.parametrize("action", ["commit", "abort"])
@pytest.mark.parametrize("point", ["checked", "manifests-written", "ended"])
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_it(
    sink: IcebergSink, action: str, point: str
) -> None:
    parts = [written(sink, range(10 * p, 10 * p + 10), p=p) for p in range(2)]
    ended = "committed" if action == "commit" else "aborted"
    name = {"checked": f"{action}-checked", "ended": ended}
    dumped = [sink.dump(part) for part in parts]
    failpoint = f"iceberg-{name.get(point, point)}"
    status, _ = in_child(sink, action, driver(), dumped, failpoint=failpoint)
    assert status == -signal.SIGKILL, f"{failpoint} was never reached"
    for generation in (2, 3):
        successor = sink.create_committer(driver(generation))
        list(successor.list_lingering())
        outcomes = until_proved(getattr(successor, action), parts)
        if action == "abort":
            assert outcomes == [ABORTED] * 2
            assert until_proved(successor.commit, parts) == [CommitOutcome.LOST] * 2
        else:
            is_done = generation == 3 or point == "ended"
            assert outcomes == [ALREADY if is_done else COMMITTED] * 2
        assert list(successor.list_lingering()) == []
    assert sorted(numbers(sink)) == (list(range(20)) if action == "commit" else [])
    assert len(data_files(sink)) == (2 if action == "commit" else 0)


@pytest.mark.parametrize("error", [CommitStateUnknownException, CommitFailedException, OSError])
@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_is_read_back_and_nothing_named_is_deleted(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch, error: type[Exception], landed: bool
) -> None:
    """A repeated request may be refused by the first one's own snapshot."""
    real, lost = SqlCatalog.commit_table, [False]

    def lossy(catalog: SqlCatalog, *given: Any) -> Any:
        if lost[0]:
            return real(catalog, *given)
        lost[0] = True
        if landed:
            real(catalog, *given)
        raise error("no answer")

    monkeypatch.setattr(SqlCatalog, "commit_table", lossy)
    committer = sink.create_committer(driver())
    parts = [written(sink, range(10 * p, 10 * p + 10), p=p) for p in range(2)]
    assert until_proved(committer.commit, parts) == [ALREADY if landed else COMMITTED] * 2
    assert sorted(numbers(sink)) == list(range(20))
    assert until_proved(committer.commit, parts) == [ALREADY] * 2
    lost[0] = False
    other = written(sink, range(50, 60), epoch=1)
    assert until_proved(committer.abort, [other]) == [ABORTED]
    assert until_proved(committer.commit, [other]) == [CommitOutcome.LOST]
    assert sorted(numbers(sink)) == list(range(20))


def test_a_commit_that_lands_late_is_excluded_by_the_abort(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was still on its way when its driver gave up."""
    real, late = SqlCatalog.commit_table, list[Callable[[], Any]]()

    def delayed(catalog: SqlCatalog, *given: Any) -> Any:
        late.append(lambda: real(catalog, *given))
        raise OSError("no answer")

    committable = written(sink, range(10))
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", delayed)
        with pytest.raises(OSError, match="no answer"):
            sink.create_committer(driver(1)).commit([committable])
    assert sink.create_committer(driver(2)).abort([committable]) == [ABORTED]
    with pytest.raises(CommitFailedException):
        late[0]()
    # Not even after a rollback to the snapshot that it was made for.
    append(sink, range(5))
    with opened(sink).manage_snapshots() as snapshots:
        snapshots.create_branch(opened(sink).snapshots()[0].snapshot_id, "other")
    with pytest.raises((CommitFailedException, ValueError)):
        late[0]()
    assert sorted(numbers(sink)) == list(range(5))


def alter(how: str, *given: Any) -> Callable[[IcebergSink], None]:
    def change(sink: IcebergSink) -> None:
        with opened(sink).update_schema() as update:
            getattr(update, how)(*given)

    return change


def retype(sink: IcebergSink, column: str, kind: Any) -> None:
    alter("delete_column", column)(sink)
    alter("add_column", column, kind)(sink)


def repartition(sink: IcebergSink) -> None:
    with opened(sink).update_spec() as update:
        update.add_identity("id")


def shorten(sink: IcebergSink) -> None:
    compact(sink)
    expire_all(sink)


def other_job(sink: IcebergSink) -> None:
    writer = sink.create_writer(attempt(uid="other-out"))
    writer.write(batch(range(100, 110)))
    others = sink.create_committer(driver(uid="other-out"))
    assert others.commit(writer.prepare_commit()) == [COMMITTED]


OTHERS: dict[str, Callable[[IcebergSink], None]] = {
    "append": lambda sink: append(sink, range(100, 110)),
    "job": other_job,
    "compaction-and-expiry": shorten,
    "partition": repartition,
    "column": alter("add_column", "more", LongType()),
    "rename": alter("rename_column", "text", "label"),
    "drop": alter("delete_column", "text"),
}


@pytest.mark.parametrize("point", ["iceberg-commit-checked", "iceberg-manifests-written"])
@pytest.mark.parametrize("other", OTHERS)
def test_another_writer_at_that_very_moment_is_no_conflict(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch, other: str, point: str
) -> None:
    append(sink, range(500, 510))
    committer = sink.create_committer(driver())
    first, second = (written(sink, range(n, n + 10), epoch=n // 10) for n in (0, 10))
    at(point, lambda: OTHERS[other](sink), monkeypatch)
    assert committer.commit([first]) == [COMMITTED]
    shorten(sink)
    assert committer.commit([first, second]) == [ALREADY, COMMITTED]
    more = range(100, 110) if other in ("append", "job") else ()
    assert ids(sink) == [*range(20), *more, *range(500, 510)]
    assert opened(sink).scan(row_filter="id == 11").to_arrow().num_rows == 1


def test_a_committed_epoch_is_known_after_compaction_and_expiry(sink: IcebergSink) -> None:
    """Its reply was lost, and neither its snapshot nor its files are there any more."""
    parts = [written(sink, range(10 * p, 10 * p + 10), p=p) for p in range(2)]
    assert sink.create_committer(driver()).commit(parts) == [COMMITTED] * 2
    before = data_files(sink)
    compact(sink)
    expire_all(sink)
    location = opened(sink).location().removeprefix("file://")
    for name in before:
        Path(location, "data", name).unlink()
    assert sink.create_committer(driver(2)).commit(parts) == [ALREADY] * 2
    assert sink.create_committer(driver(2)).abort(parts) == [AbortOutcome.COMMITTED] * 2
    assert sorted(numbers(sink)) == list(range(20))


def test_a_ledger_that_was_removed_proves_nothing(
    sink: IcebergSink, caplog: pytest.LogCaptureFixture
) -> None:
    committer = sink.create_committer(driver())
    committed = written(sink, range(10))
    assert committer.commit([committed]) == [COMMITTED]
    open_ = written(sink, range(10, 20), epoch=1)
    append(sink, range(20, 30))
    table = opened(sink)
    with table.transaction() as transaction:
        transaction.remove_properties(*[n for n in table.properties if n.startswith(PROPERTY)])
    assert committer.commit([committed]) == [ALREADY]  # by its snapshot's summary
    expire_all(sink)
    # Files named by a snapshot are committed all the same, and never deleted.
    assert committer.commit([committed]) == [ALREADY]
    assert committer.abort([committed]) == [AbortOutcome.COMMITTED]
    append(sink, range(30, 40))
    expire_all(sink)
    assert committer.commit([open_]) == [CommitOutcome.UNKNOWN]
    assert "are expired" in caplog.text
    # Later rows are not concerned.
    assert committer.commit([written(sink, range(40, 50), epoch=2)]) == [COMMITTED]
    assert sorted(numbers(sink)) == [*range(10), *range(20, 50)]


def test_the_property_is_bounded_and_says_how_far_back_it_reaches(sink: IcebergSink) -> None:
    committer = sink.create_committer(driver())
    first = written(sink, range(1))
    early = written(sink, range(500, 501), p=9)
    assert committer.commit([first]) == [COMMITTED]
    for epoch in range(1, KEPT + 2):
        assert committer.commit([written(sink, range(epoch, epoch + 1), epoch=epoch)]) == [
            COMMITTED
        ]
    (value,) = [json.loads(v) for n, v in opened(sink).properties.items() if PROPERTY in n]
    assert (value["since"], len(value["commits"])) == (2, KEPT)
    assert committer.commit([first]) == [ALREADY]  # its snapshot is there
    assert committer.commit([early]) == [COMMITTED]  # all snapshots are: none has it
    compact(sink)
    expire_all(sink)
    assert committer.commit([first]) == [CommitOutcome.UNKNOWN]


def test_a_table_that_was_replaced_under_the_job_is_said(sink: IcebergSink) -> None:
    committer = sink.create_committer(driver())
    committable = written(sink, range(10))
    catalog = opened(sink).catalog
    catalog.drop_table(sink.table)
    made(dict(sink.catalog))
    with pytest.raises(CommitFailedError, match="dropped, replaced or moved while the job ran"):
        committer.commit([committable])
    assert numbers(sink) == []


def test_a_table_that_was_renamed_keeps_its_rows(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next table of its name lies in the same directory, with records of the first one's."""
    committable = written(sink, range(10))
    with monkeypatch.context() as patch:
        patch.setattr("seamark.sinks.internal.stored.delete", lambda *_: None)  # the driver died
        assert sink.create_committer(driver()).commit([committable]) == [COMMITTED]
    catalog, location = opened(sink).catalog, opened(sink).location()
    catalog.rename_table(sink.table, "shop.kept")
    made(dict(sink.catalog))
    assert opened(sink).location() == location
    assert list(sink.create_committer(driver(2)).list_lingering()) == []
    kept = IcebergSink("shop.kept", sink.catalog)
    assert sorted(numbers(kept)) == list(range(10))
    assert list(kept.create_committer(driver(2)).list_lingering()) == []
    assert not list(Path(location.removeprefix("file://"), "_seamark").rglob("*.json"))


def test_the_files_of_a_location_that_ends_with_a_slash_are_named_as_they_lie(
    sink: IcebergSink,
) -> None:
    """On S3 two slashes are another object's name."""
    table = opened(sink)
    location = table.location()
    table.catalog.commit_table(table, (), (SetLocationUpdate(location=f"{location}/"),))
    committable = written(sink, range(10))
    assert sink.create_committer(driver()).commit([committable]) == [COMMITTED]
    (task,) = opened(sink).scan().plan_files()
    assert task.file.file_path == f"{location}/{next(iter(committable.sizes))}"


def test_times_never_go_back_behind_another_writer_s_clock(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's library reads no table whose log of snapshots goes back by a minute."""
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + 3600)
        append(sink, range(100, 110))
    sink.create_committer(driver(uid="other-out")).preflight()
    wide = IcebergSink(sink.table, sink.catalog, merge_schema=True)
    schema = (Column("more", "int"),)
    with pytest.raises(PreflightError, match=r"changed last in the future, by 35\d\d s: after a"):
        wide.create_committer(driver(schema=schema)).preflight()
    committer = sink.create_committer(driver())
    for epoch in range(2):
        part = written(sink, range(10 * epoch, 10 * epoch + 10), epoch=epoch)
        assert committer.commit([part]) == [COMMITTED]
        metadata = opened(sink).metadata
        times = [entry.timestamp_ms for entry in metadata.snapshot_log]
        assert times == sorted(times)
        assert metadata.last_updated_ms == times[-1]
        files = [entry.timestamp_ms for entry in metadata.metadata_log]
        assert files == sorted(files)


def test_the_ledger_is_begun_beside_another_writer(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = snapshots.commit, [range(n, n + 10) for n in (100, 110)]

    def beaten(*given: Any) -> Any:
        if others:
            append(sink, others.pop())
        return real(*given)

    monkeypatch.setattr(snapshots, "commit", beaten)
    sink.create_committer(driver(uid="other-out")).preflight()
    assert f"{PROPERTY}c0ffee00c0ffee00/other-out" in opened(sink).properties


def test_an_attempt_whose_rows_are_all_refused_commits_nothing(tmp_path: Path) -> None:
    sink = made(catalog_at(tmp_path), ["part"])
    writer = sink.create_selective_writer(attempt())
    texts = pa.array([b"\xff"]).view(pa.string())
    rows = pa.record_batch([[1], texts, ["row 1"]], schema=batch([]).schema)
    assert [row.index for row in writer.write_accepted(rows)] == [0]
    assert writer.prepare_commit() == []


def test_small_manifests_are_made_one_and_no_row_is_lost(tmp_path: Path) -> None:
    sink = made(catalog_at(tmp_path), ["part"])
    table = opened(sink)
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "5"})
    committer = sink.create_committer(driver())
    counts = []
    for epoch in range(12):
        part = written(sink, range(10 * epoch, 10 * epoch + 10), epoch=epoch)
        assert committer.commit([part]) == [COMMITTED]
        counts.append(len(opened(sink).current_snapshot().manifests(table.io)))
    assert max(counts) == 5
    assert sorted(numbers(sink)) == list(range(120))
    found = opened(sink).scan(row_filter="part == 'ü:2'").to_arrow()["id"].to_pylist()
    assert sorted(found) == [n for n in range(120) if n % 3 == 2]
    table = opened(sink)
    table.delete("id < 60")  # reads what the merged manifest says
    assert committer.commit([written(sink, range(120, 130), epoch=12)]) == [COMMITTED]
    assert sorted(numbers(sink)) == list(range(60, 130))


def test_a_table_may_always_merge_its_manifests(sink: IcebergSink) -> None:
    with opened(sink).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "0"})
    committer = sink.create_committer(driver())
    for epoch in range(3):
        part = written(sink, range(10 * epoch, 10 * epoch + 10), epoch=epoch)
        assert committer.commit([part]) == [COMMITTED]
    assert sorted(numbers(sink)) == list(range(30))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (alter("delete_column", "text"), "has no column 'text' now"),
        (alter("rename_column", "text", "label"), "has no column 'text' now"),
        (
            lambda sink: retype(sink, "id", StringType()),
            "has string at 'id', which is bigint in the DataFrame, now",
        ),
    ],
)
def test_a_table_that_no_longer_takes_the_columns_is_said(
    sink: IcebergSink, change: Callable[[IcebergSink], None], words: str
) -> None:
    change(sink)
    with pytest.raises(WriteRefusedError, match=f"altered while the job ran: it {words}"):
        written(sink, range(10))


def test_a_field_renamed_within_a_column_loses_no_value(tmp_path: Path) -> None:
    kind = "struct<n:bigint,text:string>"
    sink = made(catalog_at(tmp_path), schema=(Column("id", "bigint"), Column("both", kind)))
    both = pa.array([{"n": 1, "text": "x"}], pa.struct({"n": pa.int64(), "text": pa.string()}))
    rows = pa.record_batch({"id": pa.array([1]), "both": both})
    alter("rename_column", "both.n", "number")(sink)
    with pytest.raises(WriteRefusedError, match="it has struct<number:bigint,text:string> at"):
        sink.create_writer(attempt()).write(rows)


def test_rows_that_nobody_could_read_are_not_committed(sink: IcebergSink) -> None:
    """REPLACE TABLE keeps the table's id and the ids of its columns' names, whatever their type."""
    committer = sink.create_committer(driver())
    first, second = (written(sink, range(n, n + 10), epoch=n // 10) for n in (0, 10))
    alter("add_column", "more", LongType())(sink)
    assert committer.commit([first]) == [COMMITTED]
    table = opened(sink)
    fields = [NestedField(1, "id", StringType()), *table.schema().fields[1:]]
    table.catalog.commit_table(
        table,
        (),
        (AddSchemaUpdate(schema=Schema(*fields, schema_id=9)), SetCurrentSchemaUpdate(schema_id=9)),
    )
    with pytest.raises(CommitFailedError, match="'id' has another type now than in the files of"):
        committer.commit([second])
    back = SetCurrentSchemaUpdate(schema_id=0)
    opened(sink).catalog.commit_table(opened(sink), (), (back,))
    assert committer.commit([second]) == [COMMITTED]
    assert ids(sink) == list(range(20))


def test_old_metadata_is_deleted_as_the_table_says(sink: IcebergSink) -> None:
    with opened(sink).transaction() as transaction:
        transaction.set_properties(
            {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "3",
            }
        )
    committer = sink.create_committer(driver())
    for epoch in range(8):
        assert committer.commit([written(sink, range(epoch, epoch + 1), epoch=epoch)]) == [
            COMMITTED
        ]
    location = opened(sink).location().removeprefix("file://")
    assert len(list(Path(location, "metadata").glob("*.metadata.json"))) == 4
    assert sorted(numbers(sink)) == list(range(8))


def test_columns_are_added_where_the_user_says_so(sink: IcebergSink) -> None:
    with opened(sink).update_schema() as update:
        update.delete_column("text")
        update.add_column("count", IntegerType())
    wide = IcebergSink(sink.table, sink.catalog, merge_schema=True)
    committer = wide.create_committer(driver())
    committer.preflight()
    committer.preflight()
    assert opened(sink).schema().column_names == ["id", "part", "count", "text"]
    assert committer.commit([written(wide, range(5))]) == [COMMITTED]
    assert ids(sink) == list(range(5))


@pytest.mark.parametrize("name", ["TEXT", "a.b"])
def test_a_new_column_whose_name_is_taken_is_refused(tmp_path: Path, name: str) -> None:
    """No reader of Spark's reads two columns of which the names differ in case alone."""
    columns = (Column("text", "string"), Column("a", "struct<b:int>"))
    sink = made(catalog_at(tmp_path), (), columns)
    wide = IcebergSink(sink.table, sink.catalog, merge_schema=True)
    there = "text" if name == "TEXT" else "a.b"
    committer = wide.create_committer(driver(schema=(*columns[1:], Column(name, "string"))))
    with pytest.raises(PreflightError, match=f"{name}' is .*{there}.*rename it"):
        committer.preflight()
    assert {*opened(sink).schema().column_names} == {"text", "a", "a.b"}
