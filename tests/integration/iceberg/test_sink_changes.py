"""IcebergSink with keys and op: `tests/changes_suite.py`, everything that may come between the
reading of the files and the compare-and-set, a driver killed at each point, odd keys.

Real tables on a local disk, in an SQLite catalog; rows are read back by pyiceberg, one table by
DuckDB.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import CommitFailedError, ConfigurationError, PreflightError
from seamark.model.schema import Column
from seamark.sinks.iceberg import IcebergSink, snapshots
from seamark.sinks.iceberg.candidates import Keys
from seamark.verify.conformance.steps import DONE, in_child, until_proved
from tests.changes_suite import SCHEMA, Change, ChangesSuite, ChangesUnderTest, commit, write
from tests.changes_suite import driver as changes_driver
from tests.every_type import TYPES
from tests.integration.iceberg.sink_kit import (
    attempt,
    catalog_at,
    compact,
    driver,
    expire_all,
    made,
    opened,
    unnamed,
)
from tests.two_drivers import ALREADY, COMMITTED, at

COLUMNS = (Column("id", "bigint"), Column("text", "string"), Column("note", "string"))
FORMS: dict[str, list[str]] = {
    "plain": [],
    "by-text": ["text"],
    "by-key": ["bucket(3, id)", "text"],
}
OP = {"mode": "upsert", "keys": ["id"], "op": "op"}
POINTS = ("iceberg-commit-checked", "iceberg-files-rewritten", "iceberg-manifests-written")


def table(path: Path, form: str = "plain", **settings: Any) -> IcebergSink:
    """Return a sink with keys and op on a new table, which has the column `note` besides."""
    sink = made(catalog_at(path / "lake"), FORMS[form], COLUMNS)
    return IcebergSink(sink.table, sink.catalog, **{**OP, **settings})


def rows(sink: IcebergSink) -> dict[int, tuple[str, str | None]]:
    """Return the text and the note of each id; no key is there twice."""
    found = opened(sink).scan().to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["text"], row.get("note")) for row in found}


def theirs(sink: IcebergSink, *found: tuple[int, str, str | None]) -> None:
    """Append rows as another program does."""
    columns = dict(zip(("id", "text", "note"), zip(*found, strict=True), strict=True))
    names = [name for name in opened(sink).schema().column_names if name in columns]
    types = {"id": pa.int64()}
    arrays = [pa.array(columns[name], types.get(name, pa.string())) for name in names]
    opened(sink).append(pa.table(arrays, names=names))


def steps(sink: IcebergSink) -> list[str]:
    """Return the operation of each snapshot."""
    return [one.summary.operation.value for one in opened(sink).snapshots()]


class TestIceberg(ChangesSuite):
    @pytest.fixture(params=list(FORMS))
    def under(self, request: pytest.FixtureRequest, tmp_path: Path) -> ChangesUnderTest:
        sink = table(tmp_path, request.param)

        def found() -> Any:
            assert unnamed(sink) == [], "what no snapshot names is deleted"
            return rows(sink)

        def mark() -> bool:
            there = opened(sink).scan().to_arrow()
            seen = pa.array(["seen"] * there.num_rows)
            at = there.column_names.index("note")
            opened(sink).overwrite(there.set_column(at, there.field("note"), seen))
            return True

        return ChangesUnderTest(sink, found, mark, refuses_null=False)

    def test_a_null_that_the_table_refuses(self, under: ChangesUnderTest) -> None:
        """A table with NOT NULL is refused at the start."""


def test_an_epoch_is_one_snapshot_with_its_proof(tmp_path: Path) -> None:
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"), (2, "old", "n"), (3, "old", None))
    theirs(sink, (8, "far", None), (9, "far", None))
    prepared = write(sink, [(1, "new", "update"), (2, None, "delete"), (4, "new", "insert")], 7)
    commit(sink, prepared)
    assert rows(sink) == {
        1: ("new", "n"), 3: ("old", None), 4: ("new", None), 8: ("far", None), 9: ("far", None)
    }  # fmt: skip
    last = opened(sink).snapshots()[-1]
    told = last.summary.additional_properties
    assert steps(sink) == ["append", "append", "overwrite"]
    assert prepared[0].handle.rpartition("-")[2] in told["seamark.committed"].split()
    counts = ("added-data-files", "deleted-data-files", "added-records", "deleted-records")
    assert [told[name] for name in counts] == ["2", "1", "3", "3"], "the far file was not touched"
    assert (told["total-records"], told["total-data-files"]) == ("5", "3")
    commit(sink, write(sink, [(8, None, "delete"), (9, None, "delete")], 8))
    commit(sink, write(sink, [(10, "more", "insert")], 9))
    commit(sink, write(sink, [(11, None, "delete")], 10))
    assert steps(sink)[3:] == ["delete", "append", "append"]
    assert sorted(rows(sink)) == [1, 3, 4, 10]
    expire_all(sink)
    (late,) = sink.create_committer(changes_driver(2)).abort(prepared)
    assert late is AbortOutcome.COMMITTED


def test_duckdb_reads_the_same_rows(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    sink = table(tmp_path, "by-key")
    theirs(sink, *[(n, "old", "n") for n in range(20)])
    ops = [(n, None if n % 3 else f"new {n}", "delete" if n % 3 else "update") for n in range(10)]
    commit(sink, write(sink, ops, 0))
    files = [task.file.file_path for task in opened(sink).scan().plan_files()]
    paths = [path.removeprefix("file://") for path in files]
    found = duckdb.sql(f"SELECT id, text, note FROM read_parquet({paths!r})").fetchall()
    assert {key: (text, note) for key, text, note in found} == rows(sink)
    assert sorted(key for key, _, _ in found) == [0, 3, 6, 9, *range(10, 20)]


# --- what comes between


def forget_files(sink: IcebergSink) -> None:
    """Compaction, expiry, and the deletion of the replaced files, all at once."""
    before = {task.file.file_path for task in opened(sink).scan().plan_files()}
    compact(sink)
    expire_all(sink)
    for path in before:
        Path(path.removeprefix("file://")).unlink()


def alter(how: str, *given: Any) -> Callable[[IcebergSink], None]:
    def change(sink: IcebergSink) -> None:
        with opened(sink).update_schema() as update:
            getattr(update, how)(*given)

    return change


def repartition(sink: IcebergSink) -> None:
    with opened(sink).update_spec() as update:
        update.add_identity("text")


OTHERS: dict[str, Callable[[IcebergSink], None]] = {
    "append": lambda sink: theirs(sink, (1, "theirs", "n"), (7, "theirs", "n")),
    "delete": lambda sink: opened(sink).delete("id == 1"),
    "compaction-and-expiry": forget_files,
    "partition": repartition,
    "column": alter("add_column", "more", LongType()),
    "rename": alter("rename_column", "id", "number"),
    "drop": alter("delete_column", "note"),
}


@pytest.mark.parametrize("point", ["files-known", *POINTS])
@pytest.mark.parametrize("other", OTHERS)
def test_another_writer_at_that_very_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, point: str
) -> None:
    """After the reading of the manifests, of the table and of the files, before the commit."""
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"), (2, "old", "n"), (3, "old", "n"))
    committer = sink.create_committer(changes_driver())
    committer.preflight()
    changes: list[Change] = [(1, "new", "update"), (2, None, "delete"), (4, "new", "insert")]
    prepared = write(sink, changes, 0)
    if point == "files-known":
        real, done = snapshots.live_files, []

        def then(*given: Any) -> Any:
            found = real(*given)
            if not done:
                done.append(True)
                OTHERS[other](sink)
            return found

        monkeypatch.setattr(snapshots, "live_files", then)
    else:
        at(point, lambda: OTHERS[other](sink), monkeypatch)
    assert until_proved(committer.commit, prepared) == [COMMITTED]
    assert until_proved(committer.commit, prepared) == [ALREADY]
    key = "number" if other == "rename" else "id"
    found = opened(sink).scan().to_arrow().to_pylist()
    note = None if other in ("drop", "delete") else "n"
    expected = {1: ("new", note), 3: ("old", None if other == "drop" else "n"), 4: ("new", None)}
    expected |= {7: ("theirs", "n")} if other == "append" else {}
    assert len(found) == len(expected)
    assert {row[key]: (row["text"], row.get("note")) for row in found} == expected
    assert unnamed(sink) == []


def test_files_once_written_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An appender that is faster four times does not make the merge begin anew."""
    sink = table(tmp_path)
    theirs(sink, *[(n, "old", "n") for n in range(10)])
    prepared = write(sink, [(n, "new", "update") for n in range(5)], 0)
    real, met = snapshots.commit, []

    def slow(*given: Any, **how: Any) -> Any:
        if len(met) < 4:
            met.append(True)
            theirs(sink, (100 + len(met), "theirs", None))
        return real(*given, **how)

    monkeypatch.setattr(snapshots, "commit", slow)
    committer = sink.create_committer(changes_driver())
    assert committer.commit(prepared) == [COMMITTED]
    assert sorted(rows(sink)) == [*range(10), *range(101, 105)]
    names = {task.file.file_path.rpartition("-")[2] for task in opened(sink).scan().plan_files()}
    assert {"000.parquet", "001.parquet"} <= names
    assert unnamed(sink) == []


@pytest.mark.parametrize("point", [*POINTS, "iceberg-committed"])
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_it(
    tmp_path: Path, point: str
) -> None:
    sink = table(tmp_path, "by-key")
    theirs(sink, *[(n, "old", "n") for n in range(20)])
    changes: list[Change] = [(n, f"new {n}", "update") for n in range(5, 25)]
    prepared = write(sink, [*changes, (1, None, "delete")], 0)
    status, _ = in_child(
        sink, "commit", changes_driver(), [sink.dump(one) for one in prepared], failpoint=point
    )
    assert status == -signal.SIGKILL, f"{point} was never reached"
    for generation in (2, 3):
        successor = sink.create_committer(changes_driver(generation))
        outcomes = until_proved(successor.commit, prepared)
        is_done = generation == 3 or point == "iceberg-committed"
        assert outcomes == [ALREADY if is_done else COMMITTED]
        left = [one.committable for one in successor.list_lingering()]
        assert set(successor.abort(left)) <= {AbortOutcome.ABORTED}
        assert len(left) == (generation == 2 and point in POINTS[1:]), "the dead driver's files"
    expected = {n: ("old", "n") for n in range(5) if n != 1}
    expected |= {n: (f"new {n}", "n" if n < 20 else None) for n in range(5, 25)}
    assert rows(sink) == expected
    assert unnamed(sink) == []


@pytest.mark.parametrize("error", [CommitStateUnknownException, CommitFailedException, OSError])
@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_is_read_back_and_nothing_named_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], landed: bool
) -> None:
    sink = table(tmp_path)
    theirs(sink, *[(n, "old", "n") for n in range(10)])
    real, lost = SqlCatalog.commit_table, []

    def lossy(catalog: SqlCatalog, *given: Any) -> Any:
        if len(lost) == 2:
            return real(catalog, *given)
        lost.append(True)
        if landed and len(lost) == 2:
            real(catalog, *given)
        raise error("no answer")

    prepared = write(sink, [(n, "new", "update") for n in range(5)], 0)
    monkeypatch.setattr(SqlCatalog, "commit_table", lossy)
    committer = sink.create_committer(changes_driver())
    assert until_proved(committer.commit, prepared) == [ALREADY if landed else COMMITTED]
    assert until_proved(committer.commit, prepared) == [ALREADY]
    assert rows(sink) == {n: ("new" if n < 5 else "old", "n") for n in range(10)}
    assert unnamed(sink) == []


def test_a_merge_that_lands_late_is_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver gave up, and the next one has deleted its files, or made a merge of its own."""
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"), (2, "old", "n"))
    real, late = SqlCatalog.commit_table, list[Callable[[], Any]]()

    def delayed(catalog: SqlCatalog, *given: Any) -> Any:
        late.append(lambda: real(catalog, *given))
        raise OSError("no answer")

    prepared = write(sink, [(1, "new", "update")], 0)
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", delayed)
        with pytest.raises(OSError, match="no answer"):
            sink.create_committer(changes_driver()).commit(prepared)
    second = sink.create_committer(changes_driver(2))
    left = [found.committable for found in second.list_lingering()]
    merge = [one for one in left if one.handle != prepared[0].handle]
    assert (len(left), len(merge)) == (2, 1)
    assert second.abort(merge) == [AbortOutcome.ABORTED]
    with pytest.raises(CommitFailedException):
        late[0]()
    assert second.commit(prepared) == [COMMITTED]
    with pytest.raises(CommitFailedException):
        late[0]()
    assert rows(sink) == {1: ("new", "n"), 2: ("old", "n")}
    assert unnamed(sink) == []


def test_a_late_driver_changes_nothing_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other driver's whole commit runs while this one has its files written."""
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"), (2, "old", "n"))
    first = write(sink, [(1, "b", "update"), (5, "b", "insert")], 1)
    second = write(sink, [(1, "c", "update")], 2)
    old, new = (sink.create_committer(changes_driver(n)) for n in (1, 2))

    def others() -> None:
        assert new.commit(first) == [COMMITTED]
        assert new.commit(second) == [COMMITTED]
        assert [one.committable.handle for one in new.list_lingering()] != []

    at("iceberg-files-rewritten", others, monkeypatch)
    assert old.commit(first) == [ALREADY]
    assert old.commit(second) == [ALREADY]
    assert rows(sink) == {1: ("c", "n"), 2: ("old", "n"), 5: ("b", None)}
    assert unnamed(sink) == []
    third = write(sink, [(2, None, "delete")], 3)
    assert new.abort(third) == [AbortOutcome.ABORTED]
    assert old.commit(third) == [CommitOutcome.LOST]
    assert sorted(rows(sink)) == [1, 2, 5]


def test_rows_staged_by_another_setting_move_as_meant(tmp_path: Path) -> None:
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"))
    staged = write(sink, [(1, None, "delete"), (2, "b", "insert")], 0)
    plain = IcebergSink(sink.table, sink.catalog)
    writer = plain.create_writer(attempt(epoch=0, partition=3))
    writer.write(pa.record_batch({"id": pa.array([9]), "text": pa.array(["plain"])}))
    both = [*staged, *writer.prepare_commit()]
    committer = plain.create_committer(driver(schema=SCHEMA[:2]))
    assert set(until_proved(committer.commit, both)) <= DONE
    assert rows(sink) == {2: ("b", None), 9: ("plain", None)}
    assert unnamed(sink) == []


@pytest.mark.parametrize("ended", ["committed", "aborted"])
def test_another_driver_between_two_settings_of_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """It ends the second's rows when the first's are committed; it dies before it cleans up."""
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"))
    writer = IcebergSink(sink.table, sink.catalog).create_writer(attempt(epoch=0, partition=3))
    writer.write(pa.record_batch({"id": pa.array([9]), "text": pa.array(["plain"])}))
    plain, staged = list(writer.prepare_commit()), write(sink, [(1, "b", "update")], 0)
    later = write(sink, [(1, "c", "update")], 1)
    old, new = (sink.create_committer(changes_driver(n)) for n in (1, 2))
    for cleaning in ("_delete", "_tidy"):
        monkeypatch.setattr(new, cleaning, lambda _: None)

    def others() -> None:
        if ended == "committed":
            assert new.commit(staged) == new.commit(later) == [COMMITTED]
        else:
            assert new.abort(staged) == [AbortOutcome.ABORTED]

    at("iceberg-committed", others, monkeypatch)
    outcome = ALREADY if ended == "committed" else CommitOutcome.LOST
    assert old.commit([*plain, *staged]) == [COMMITTED, outcome]
    assert rows(sink) == {1: ("c" if ended == "committed" else "old", "n"), 9: ("plain", None)}


# --- keys


KEYS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "money": ("decimal(38,2)", pa.decimal128(38, 2), [Decimal("-" + "9" * 36 + ".99"),
              Decimal("0.00"), Decimal("1.50"), Decimal("9" * 36 + ".99")]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [-62_135_596_800_000_000 - 1, -1, 0, 1,
           1_700_000_000_123_456, 9_000_000_000_000_000_00]),
    "local": ("timestamp_ntz", pa.timestamp("us"), [-1, 0, 1_700_000_000_123_456]),
    "day": ("date", pa.date32(), [-800_000, -1, 0, 20_000, 3_000_000]),
    "ok": ("boolean", pa.bool_(), [True, False]),
    "text": ("string", pa.string(), ["", "a", "ü", "\U0001f600" * 20, "\uffff" * 17, "z" * 40,
             "z" * 40 + "a", "'\"`\\\n"]),
    "tiny": ("tinyint", pa.int8(), [-128, 0, 127]),
    "big": ("bigint", pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
}  # fmt: skip
SPLITS = {
    "money": ["truncate(10, k)"], "at": ["day(k)"], "local": ["month(k)"], "day": ["year(k)"],
    "ok": ["k"], "text": ["truncate(2, k)"], "tiny": ["bucket(4, k)"], "big": ["bucket(4, k)"],
}  # fmt: skip


@pytest.mark.parametrize("split", [True, False], ids=["partitioned", "plain"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_found_again(tmp_path: Path, kind: str, split: bool) -> None:
    """Each value in a file of its own, so that bounds and partitions decide."""
    type_, arrow, values = KEYS[kind]
    schema = (Column("k", type_), Column("v", "string"))
    by = SPLITS[kind] if split and kind != "money" else []
    sink = made(catalog_at(tmp_path), by, schema)
    sink = IcebergSink(sink.table, sink.catalog, mode="upsert", keys=["k"])
    committer = sink.create_committer(driver(schema=schema))
    is_time = kind in ("at", "local", "day")
    plain = pa.int32() if kind == "day" else pa.int64()
    keys = pa.array(values, plain).cast(arrow) if is_time else pa.array(values, arrow)
    for epoch in range(len(values) + 2):
        here = keys if epoch >= len(values) else keys.slice(epoch, 1)
        writer = sink.create_writer(attempt(epoch=epoch))
        text = pa.array([f"v{epoch}"] * len(here))
        writer.write(pa.record_batch([here, text], names=["k", "v"]))
        assert committer.commit(writer.prepare_commit()) == [COMMITTED]
    found = opened(sink).scan().to_arrow()
    assert found["v"].to_pylist() == [f"v{len(values) + 1}"] * len(values)
    back = found["k"].combine_chunks().cast(arrow)
    assert {*(back.cast(plain) if is_time else back).to_pylist()} == {*values}


def test_every_type_survives_a_rewrite(tmp_path: Path) -> None:
    """A row of every type, in a file with a row that is replaced; and a text that is not UTF-8."""
    schema = (Column("k", "bigint"), *(Column(n, kind) for n, (kind, _, _) in TYPES.items()))
    sink = made(catalog_at(tmp_path), (), schema)
    sink = IcebergSink(sink.table, sink.catalog, mode="upsert", keys=["k"])
    committer = sink.create_committer(driver(schema=schema))
    count = len(next(iter(TYPES.values()))[2])
    given = {"k": pa.array(range(count))}
    given |= {name: pa.array(values, kind) for name, (_, kind, values) in TYPES.items()}
    batch = pa.record_batch(given)
    texts = pa.array([b"\xff"] * count).view(pa.string())
    odd = batch.set_column(batch.schema.names.index("text"), "text", texts)
    for epoch, found in enumerate((odd, batch.slice(0, 1))):
        writer = sink.create_writer(attempt(epoch=epoch))
        writer.write(found)
        assert committer.commit(writer.prepare_commit()) == [COMMITTED]
    back = opened(sink).scan().to_arrow().sort_by("k")
    rest = [name for name in batch.schema.names if name != "text"]
    assert back.select(rest).to_pylist() == batch.select(rest).to_pylist()
    assert back["text"].cast(pa.large_binary()).to_pylist()[1:] == [b"\xff"] * (count - 1)


def test_a_key_that_was_widened_and_a_table_of_several_specs(tmp_path: Path) -> None:
    schema = (Column("k", "int"), Column("v", "string"))
    sink = made(catalog_at(tmp_path), ["bucket(4, k)"], schema)
    sink = IcebergSink(sink.table, sink.catalog, mode="upsert", keys=["k"])
    committer = sink.create_committer(driver(schema=schema))
    for epoch in range(4):
        if epoch == 1:
            with opened(sink).update_schema() as update:
                update.update_column("k", LongType())
        if epoch == 2:
            with opened(sink).update_spec() as update:
                update.remove_field("k_bucket")
                update.add_identity("v")
        writer = sink.create_writer(attempt(epoch=epoch))
        keys = pa.array(range(epoch, 20), pa.int32())
        writer.write(pa.record_batch([keys, pa.array([f"v{epoch}"] * len(keys))], names=["k", "v"]))
        assert committer.commit(writer.prepare_commit()) == [COMMITTED]
    found = opened(sink).scan().to_arrow().to_pylist()
    assert {row["k"]: row["v"] for row in found} == {n: f"v{min(n, 3)}" for n in range(20)}
    assert len(found) == 20
    assert opened(sink).scan(row_filter="k == 1").to_arrow().num_rows == 1


def test_several_key_columns_and_odd_names(tmp_path: Path) -> None:
    names = (".Id", "a`b`\"c\".d'e'", "ß 名")
    schema = (*(Column(n, k) for n, k in zip(names, ("bigint", "string", "date"), strict=True)),
              Column("v", "bigint"))  # fmt: skip
    sink = made(catalog_at(tmp_path), (), schema)
    sink = IcebergSink(sink.table, sink.catalog, mode="upsert", keys=list(names))
    committer = sink.create_committer(driver(schema=schema))
    chance, expected = random.Random(5), {}
    for epoch in range(6):
        parts = [(chance.randrange(3), chance.choice("abc"), chance.randrange(3)) for _ in range(9)]
        expected |= {part: 10 * epoch + n for n, part in enumerate(parts)}
        first, second, third = zip(*parts, strict=True)
        columns = [pa.array(first), pa.array(second), pa.array(third, pa.int32()).cast(pa.date32()),
                   pa.array(range(10 * epoch, 10 * epoch + 9))]  # fmt: skip
        writer = sink.create_writer(attempt(epoch=epoch))
        writer.write(pa.record_batch(columns, names=[*names, "v"]))
        assert committer.commit(writer.prepare_commit()) == [COMMITTED]
    found = opened(sink).scan().to_arrow()
    days = found[names[2]].cast(pa.int32()).to_pylist()
    keys = zip(found[names[0]].to_pylist(), found[names[1]].to_pylist(), days, strict=True)
    assert dict(zip(keys, found["v"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)


def test_keys_are_matched_as_by_a_dict() -> None:
    """Keys of seven columns, with nulls between."""
    chance = random.Random(1)
    names = [f"c{n}" for n in range(7)]
    fields = [NestedField(n, name, LongType(), required=False) for n, name in enumerate(names)]

    def columns(rows: Any) -> pa.Table:
        values = [pa.array(c, pa.int64()) for c in zip(*rows, strict=True)]
        return pa.table(values, names=names)

    rows = list({tuple(chance.randrange(30) for _ in names) for _ in range(2000)})
    asked = [chance.choice(rows) if chance.random() < 0.5 else
             tuple(chance.choice([None, chance.randrange(30)]) for _ in names)
             for _ in range(500)]  # fmt: skip
    places = Keys(columns(rows), Schema(*fields)).places(columns(asked))
    at = {row: place for place, row in enumerate(rows)}
    assert places.tolist() == [at.get(row, -1) for row in asked]


# --- refusals


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"op": "op"}, r"op is 'op', and there is no key.*give mode='upsert' and keys="),
        ({"mode": "append", "keys": ["id"]}, r"mode is 'append' and keys is \('id',\)"),
        ({"mode": "upsert"}, r"mode is 'upsert' and keys is \(\); mode='upsert' needs"),
        ({"mode": "merge"}, "mode is 'merge'"),
        ({"mode": "upsert", "keys": ["id"], "op": "ID"}, "op is 'ID', which is a key column"),
        (
            {"mode": "upsert", "keys": ["id"], "op": "o", "partition_by": ["day(o)"]},
            "op is 'o', which is a partition column",
        ),
    ],
)
def test_wrong_settings(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        IcebergSink("shop.orders", **settings)


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        (SCHEMA[:2], "the op column 'op' is not in the DataFrame"),
        (SCHEMA[1:], "the key column 'id' is not in the DataFrame"),
        ((Column("id", "double"), *SCHEMA[1:]), "the key column 'id' is double; allowed are"),
        ((Column("id", "binary"), *SCHEMA[1:]), "the key column 'id' is binary; allowed are"),
    ],
)
def test_wrong_columns(schema: tuple[Column, ...], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        IcebergSink("shop.orders", **OP).select_expressions(schema)


def test_a_text_that_is_not_utf8_is_no_key(tmp_path: Path) -> None:
    schema = (Column("id", "string"), Column("text", "string"))
    sink = made(catalog_at(tmp_path), (), schema)
    sink = IcebergSink(sink.table, sink.catalog, mode="upsert", keys=["id"])
    writer = sink.create_selective_writer(attempt())
    keys = pa.array([b"a", b"\xff", None]).view(pa.string())
    refused = writer.write_accepted(pa.record_batch([keys, keys], names=["id", "text"]))
    assert [(row.index, row.reason) for row in refused] == [
        (1, "a text of its key is not UTF-8"), (2, "its key column 'id' is null")
    ]  # fmt: skip


def test_a_table_with_delete_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another program's merge-on-read leaves it."""
    sink = table(tmp_path)
    theirs(sink, (1, "old", "n"))
    prepared = write(sink, [(1, "new", "update")], 0)
    found = opened(sink)
    (_, file) = snapshots.live_files(found, lambda _: True)[0]
    file[0] = DataFileContent.POSITION_DELETES
    with monkeypatch.context() as patch:
        patch.setattr(ManifestWriterV2, "content", lambda _: ManifestContent.DELETES)
        snapshots.add(found, [(found.schema(), found.spec(), [file])], {}, {"a": "b"})
    committer = sink.create_committer(changes_driver())
    with pytest.raises(PreflightError, match="the table has delete files"):
        committer.preflight()
    with pytest.raises(CommitFailedError, match=r"has delete files.*not visible: rewrite"):
        committer.commit(prepared)
    plain = IcebergSink(sink.table, sink.catalog)
    plain.create_committer(driver(schema=SCHEMA[:2])).preflight()


def test_a_key_column_that_was_dropped(tmp_path: Path) -> None:
    sink = table(tmp_path)
    prepared = write(sink, [(1, "new", "update")], 0)
    alter("add_column", "other", LongType())(sink)
    alter("delete_column", "id")(sink)
    with pytest.raises(CommitFailedError, match="no key column 'id' any more"):
        sink.create_committer(changes_driver()).commit(prepared)


def test_the_newest_schema_with_a_dropped_partition_column() -> None:
    """Manifests of an old spec are written with a schema that has its columns."""
    old, new = (
        Schema(
            *[NestedField(n, f"c{n}", LongType(), required=False) for n in ids], schema_id=number
        )
        for number, ids in enumerate(((1, 2), (1,)))
    )

    class Field:
        source_id = 2

    class Spec:
        fields = [Field]

    class Metadata:
        schemas = [old, new]

        @staticmethod
        def schema() -> Any:
            return new

    assert snapshots.schema_with(Metadata, Spec) is old


def test_far_times_in_a_file_of_another_engine_survive_a_rewrite(tmp_path: Path) -> None:
    """Spark's default for a time in Parquet is INT96, which pyarrow takes for nanoseconds."""
    types = {"id": "bigint", "text": "string", "at": "timestamp", "all": "array<timestamp>"}
    sink = made(catalog_at(tmp_path), (), tuple(map(Column, types, types.values())))
    sink = IcebergSink(sink.table, sink.catalog, **OP)
    times = pa.array([-2_000_000_000_000_000_1, 1, 10**17], pa.timestamp("us", "UTC"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), times)
    given = pa.table({"id": [1, 2, 3], "text": ["old"] * 3, "at": times, "all": lists})
    opened(sink).append(given)
    (task,) = opened(sink).scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    pq.write_table(
        pq.read_table(path), path, use_deprecated_int96_timestamps=True, store_schema=False
    )
    commit(sink, write(sink, [(2, "new", "update")], 0))
    back = pa.table(opened(sink).scan().to_arrow()).sort_by("id")
    assert back["text"].to_pylist() == ["old", "new", "old"]
    assert back.select(["at", "all"]).to_pylist() == given.select(["at", "all"]).to_pylist()


def test_nulls_within_columns_survive_a_rewrite(tmp_path: Path) -> None:
    """The file is read as it is: pyiceberg itself makes an empty list of a null one."""
    text = pa.string()
    who = pa.struct([("a", pa.int32()), ("all", pa.list_(pa.struct([("b", text)])))])
    types = {"id": "bigint", "text": "string", "who": "struct<a:int,all:array<struct<b:string>>>"}
    types |= {"list": "array<struct<a:int,all:array<struct<b:string>>>>"}
    types |= {"map": "map<string,struct<a:int,all:array<struct<b:string>>>>"}
    sink = made(catalog_at(tmp_path), (), tuple(map(Column, types, types.values())))
    sink = IcebergSink(sink.table, sink.catalog, **OP)
    full = {"a": None, "all": [{"b": None}, None]}
    given = {
        "id": range(6),
        "text": ["old"] * 6,
        "who": pa.array([None, full, {"a": 1, "all": None}, {"a": None, "all": []}] * 2, who)[:6],
        "list": pa.array([None, [], [None], [full, None], None, [full]], pa.list_(who)),
        "map": pa.array([None, [], [("", None)], [("k", full)], None, []], pa.map_(text, who)),
    }
    writer = sink.create_writer(attempt())
    writer.write(pa.record_batch({**given, "op": ["insert"] * 6}))
    commit(sink, writer.prepare_commit())
    commit(sink, write(sink, [(1, "new", "update")], 1))
    files = [one.file.file_path.removeprefix("file://") for one in opened(sink).scan().plan_files()]
    back = pa.concat_tables([pq.read_table(path) for path in files], promote_options="permissive")
    expected = pa.table(given).to_pylist()
    expected[1]["text"] = "new"
    assert sorted(back.to_pylist(), key=lambda row: row["id"]) == expected


@pytest.mark.parametrize("parts", [[], ["text"]])
def test_a_table_that_was_of_version_1(tmp_path: Path, parts: list[str]) -> None:
    """Its old manifests tell no content, and have rows of the keys all the same."""
    catalog = catalog_at(tmp_path / "lake")
    lake = load_catalog("default", **catalog)
    lake.create_namespace("shop")
    fields = (NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
    old = lake.create_table("shop.orders", Schema(*fields), properties={"format-version": "1"})
    for name in parts:
        with old.update_spec() as spec:
            spec.add_identity(name)
    for number in range(3):
        old.append(pa.table({"id": [number, number + 10], "text": ["a", "b"]}))
    with old.transaction() as transaction:
        transaction.upgrade_table_version(2)
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2"})
    sink = IcebergSink("shop.orders", catalog, **OP)
    sink.create_committer(changes_driver()).preflight()
    commit(sink, write(sink, [(0, "new", "update"), (11, None, "delete")], 0))
    commit(sink, write(sink, [(1, "newer", "update"), (12, None, "delete")], 1))
    found = {row["id"]: row["text"] for row in opened(sink).scan().to_arrow().to_pylist()}
    assert found == {0: "new", 1: "newer", 2: "a", 10: "b"}


@pytest.mark.parametrize("settings", [{}, OP], ids=["append", "changes"])
def test_a_table_becomes_one_of_version_3(tmp_path: Path, settings: dict[str, Any]) -> None:
    """pyiceberg makes none: its metadata says so."""
    sink = made(catalog_at(tmp_path / "lake"), [], COLUMNS)
    sink = IcebergSink(sink.table, sink.catalog, **settings)
    schema = (*COLUMNS[:2], Column("op", "string")) if settings else COLUMNS[:2]
    committer = sink.create_committer(driver(schema=schema))
    committer.preflight()
    rows = pa.record_batch({"id": [1], "text": ["a"], "op": ["insert"]})
    writer = sink.create_writer(attempt())
    writer.write(rows if settings else rows.drop_columns(["op"]))
    staged = list(writer.prepare_commit())
    path = Path(opened(sink).metadata_location.removeprefix("file://"))
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), "format-version": 3, "next-row-id": 0}))
    with pytest.raises(CommitFailedError, match=r"of format version 3 now.* of version 2 again"):
        committer.commit(staged)
    with pytest.raises(PreflightError, match="of format version 3, which this sink"):
        sink.create_committer(driver(schema=schema)).preflight()
    path.write_text(before)
    assert list(committer.commit(staged)) == [CommitOutcome.COMMITTED]
    committer.close()
