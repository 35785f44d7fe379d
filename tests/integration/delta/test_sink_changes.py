"""DeltaSink with keys and op: `tests/changes_suite.py`, odd names, two drivers, wrong settings."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, Schema, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import CommitFailedError, ConfigurationError, PreflightError
from seamark.model.schema import Column
from seamark.sinks.delta import DeltaSink, merging
from seamark.sinks.internal.table_merge import reduced
from tests.changes_suite import SCHEMA, ChangesSuite, ChangesUnderTest, commit, driver, write
from tests.integration.delta import sink_kit as kit

TABLE = pa.schema([("id", pa.int64()), ("text", pa.string()), ("note", pa.string())])
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partition_by": ["text"]},
    "change-data": {"configuration": {"delta.enableChangeDataFeed": "true"}},
}


def made(path: Path, form: str = "plain", schema: pa.Schema = TABLE, **settings: Any) -> DeltaSink:
    DeltaTable.create(path, schema, **FORMS[form])
    by = FORMS[form].get("partition_by", ())
    return DeltaSink(str(path), by, **{"keys": ["id"], "op": "op", **settings})


def left(sink: DeltaSink) -> list[str]:
    return sorted(p.name for p in Path(sink.path, "_seamark").rglob("*") if p.is_file())


class TestDelta(ChangesSuite):
    @pytest.fixture(params=list(FORMS))
    def under(self, request: pytest.FixtureRequest, tmp_path: Path) -> ChangesUnderTest:
        sink = made(tmp_path / "orders", request.param)

        def rows() -> Any:
            assert left(sink) == [], "what was staged is deleted when it is merged or aborted"
            found = kit.rows(sink)
            assert len({row["id"] for row in found}) == len(found)
            return {row["id"]: (row["text"], row["note"]) for row in found}

        def mark() -> bool:
            kit.opened(sink).update({"note": "'seen'"})
            return True

        return ChangesUnderTest(sink, rows, mark, refuses_null=False)

    def test_a_null_that_the_table_refuses(self, under: ChangesUnderTest) -> None:
        """A table with NOT NULL is refused at the start."""


def test_an_epoch_without_a_change_is_told_of(tmp_path: Path) -> None:
    sink = made(tmp_path / "orders")
    prepared = write(sink, [(1, None, "delete"), (2, None, "delete")], 0)
    commit(sink, prepared)
    assert kit.rows(sink) == []
    (late,) = sink.create_committer(driver(2)).abort(prepared)
    assert late is AbortOutcome.COMMITTED


def test_a_late_driver_changes_nothing_a_second_time(tmp_path: Path) -> None:
    """Both have loaded the table; the entry of the one is refused while the other's is there."""
    sink = made(tmp_path / "orders")
    old, new = sink.create_committer(driver(1)), sink.create_committer(driver(2))
    commit(sink, write(sink, [(1, "a", "insert")], 0))
    for committer in (old, new):
        committer.preflight()
    first, second = write(sink, [(1, "b", "update")], 1), write(sink, [(1, "c", "update")], 1, 0, 1)
    assert new.abort(first) == [AbortOutcome.ABORTED]
    assert new.commit(second) == [CommitOutcome.COMMITTED]
    assert old.commit(first) == [CommitOutcome.LOST]
    assert old.commit(second) == [CommitOutcome.ALREADY_COMMITTED]
    assert kit.rows(sink) == [{"id": 1, "text": "c", "note": None}]


def test_others_write_between(tmp_path: Path) -> None:
    sink = made(tmp_path / "orders")
    committer = sink.create_committer(driver())
    committer.preflight()
    prepared = write(sink, [(1, "ours", "update"), (2, "ours", "insert")], 0)
    write_deltalake(
        sink.path, pa.table({"id": [1, 9], "text": ["theirs"] * 2, "note": ["n"] * 2}, TABLE),
        mode="append",
    )  # fmt: skip
    assert committer.commit(prepared) == [CommitOutcome.COMMITTED]
    found = {row["id"]: (row["text"], row["note"]) for row in kit.rows(sink)}
    assert found == {1: ("ours", "n"), 2: ("ours", None), 9: ("theirs", "n")}


def test_rows_staged_with_keys_merge_after_the_setting_has_gone(tmp_path: Path) -> None:
    sink = made(tmp_path / "orders")
    commit(sink, write(sink, [(1, "a", "insert")], 0))
    staged = write(sink, [(1, None, "delete"), (2, "b", "insert")], 1)
    plain = DeltaSink(sink.path)
    committer = plain.create_committer(kit.driver(schema=SCHEMA[:2]))
    committer.preflight()
    assert committer.commit(staged) == [CommitOutcome.COMMITTED]
    assert [row["id"] for row in kit.rows(sink)] == [2]
    assert left(sink) == []


@pytest.mark.parametrize("ended", ["committed", "aborted"])
@pytest.mark.parametrize("first", ["appended", "merged"])
def test_another_driver_between_two_settings_of_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, ended: str
) -> None:
    """It ends the second's rows when the first's are committed; it dies before it cleans up."""
    sink = made(tmp_path / "orders")
    commit(sink, write(sink, [(1, "old", "insert")], 0))
    settings = {"keys": ["id"]} if first == "merged" else {}
    writer = DeltaSink(sink.path, **settings).create_writer(kit.attempt(epoch=1, partition=3))
    writer.write(pa.record_batch({"id": pa.array([9]), "text": pa.array(["first"])}))
    others, staged = list(writer.prepare_commit()), write(sink, [(1, "b", "update")], 1)
    later = write(sink, [(1, "c", "update")], 2)
    old, new = sink.create_committer(driver(1)), sink.create_committer(driver(2))
    for cleaning in ("_delete", "_tidy"):
        monkeypatch.setattr(new, cleaning, lambda _: None)
    name = "create_write_transaction" if first == "appended" else "merge"
    module = DeltaTable if first == "appended" else merging
    real = getattr(module, name)

    def then(*given: Any, **settings: Any) -> None:
        real(*given, **settings)
        monkeypatch.setattr(module, name, real)
        if ended == "committed":
            assert new.commit(staged) == new.commit(later) == [CommitOutcome.COMMITTED]
        else:
            assert new.abort(staged) == [AbortOutcome.ABORTED]

    monkeypatch.setattr(module, name, then)
    told = old.commit([*others, *staged])
    outcome = CommitOutcome.LOST if ended == "aborted" else CommitOutcome.ALREADY_COMMITTED
    assert told == [CommitOutcome.COMMITTED, outcome]
    found = {row["id"]: row["text"] for row in kit.rows(sink)}
    assert found == {1: "old" if ended == "aborted" else "c", 9: "first"}


def test_odd_names_and_every_type_of_key(tmp_path: Path) -> None:
    columns = {
        "Id": ("bigint", [1, 2, 1]),
        "a`b`\"c\".d'e'": ("decimal(9,2)", [Decimal("1.50")] * 3),
        "day": ("date", [datetime.date(2026, 1, 2)] * 3),
        "ok": ("boolean", [True] * 3),
        "at": ("timestamp", [datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone.utc)] * 3),
        "Text": ("string", ["ü", "", "ü"]),
    }
    schema = (*(Column(name, type_) for name, (type_, _) in columns.items()), Column("v", "double"))
    sink = DeltaSink(str(tmp_path / "odd"), create_table=True, keys=list(columns))
    sink.select_expressions(schema)
    committer = sink.create_committer(kit.driver(schema=schema))
    committer.preflight()
    at = pa.array(columns["at"][1], pa.timestamp("us", "UTC"))
    arrays = [at if name == "at" else pa.array(found[1]) for name, found in columns.items()]
    for epoch in range(2):
        writer = sink.create_writer(kit.attempt(epoch=epoch))
        values = pa.array([epoch + 0.1, epoch + 0.2, float("nan")])
        writer.write(pa.record_batch([*arrays, values], names=[column.name for column in schema]))
        assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    found = kit.rows(sink)
    assert len(found) == 2
    assert sorted(str(row["v"]) for row in found) == ["1.2", "nan"], "the last row of each key"


def test_the_last_row_of_each_key() -> None:
    rows = pa.table(
        {
            "id": [1, 2, 1, 3, 2, 3, 4],
            "op": ["insert", "update", "delete", "delete", "update", "insert", "delete"],
            "text": ["a", "b", None, None, "c", "d", None],
        }
    )
    found = sorted(reduced(rows, ["id"], "op").to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["text"], row["_seamark_op"]) for row in found] == [
        (1, None, "delete"), (2, "c", "changed"), (3, "d", "new"), (4, None, "delete")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"op": "op"}, r"op is 'op', and there is no key.*give mode='upsert' and keys="),
        ({"keys": ["id"], "op": "ID"}, "op is 'ID', which is a key column"),
        ({"keys": ["id", "Id"]}, "twice"),
        ({"keys": "id"}, "keys is 'id'; give a list"),
        ({"keys": ["id"], "op": "o", "partition_by": ["o"]}, "is a partition column"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        DeltaSink("/lake/orders", **settings)


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        (SCHEMA[:2], "the op column 'op' is not in the DataFrame"),
        (SCHEMA[1:], "the key column 'id' is not in the DataFrame"),
        ((Column("id", "double"), *SCHEMA[1:]), "the key column 'id' is double; allowed are"),
    ],
)
def test_wrong_columns(schema: tuple[Column, ...], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        DeltaSink("/lake/orders", keys=["id"], op="op").select_expressions(schema)


@pytest.mark.parametrize("why", ["delta.appendOnly", "deletionVectors"])
def test_a_table_whose_rows_stay(tmp_path: Path, why: str) -> None:
    settings = {why: "true"} if "." in why else {}
    table = DeltaTable.create(tmp_path / "orders", TABLE, configuration=settings)
    if not settings:
        table.alter.add_feature(TableFeatures.DeletionVectors, True)
    sink = DeltaSink(str(tmp_path / "orders"), keys=["id"])
    with pytest.raises(PreflightError, match=why):
        sink.create_committer(kit.driver(schema=SCHEMA[:2])).preflight()
    DeltaSink(sink.path).create_committer(kit.driver(schema=SCHEMA[:2])).preflight()


def test_a_key_that_spark_fills_up(tmp_path: Path) -> None:
    """`a` of this sink and `a  ` of Spark's would be two rows of one key."""
    marks = {"id": "char(3)", "text": "char(9)", "note": "varchar(9)"}
    fields = [
        Field(name, PrimitiveType("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": kind})
        for name, kind in marks.items()
    ]
    DeltaTable.create(tmp_path / "t", Schema(fields))
    shape = kit.driver(schema=tuple(Column(name, "string") for name in marks))
    for key, said in (("id", r"key column 'id' of the table is char\(3\)"), ("note", None)):
        committer = DeltaSink(str(tmp_path / "t"), keys=[key]).create_committer(shape)
        if said is None:
            committer.preflight()
            continue
        with pytest.raises(PreflightError, match=said):
            committer.preflight()


@pytest.mark.parametrize("key", ["9" * 38, "-" + "9" * 38, "0." + "9" * 38])
def test_a_decimal_key_of_many_digits_is_found_again(tmp_path: Path, key: str) -> None:
    """The log has a decimal's bounds as a double, which is another number."""
    type_ = pa.decimal128(38, 38 if "." in key else 0)
    schema = (Column("id", str(type_).replace("128", "").replace(" ", "")), Column("v", "string"))
    sink = DeltaSink(str(tmp_path / "t"), create_table=True, keys=["id"])
    committer = sink.create_committer(kit.driver(schema=schema))
    committer.preflight()
    for epoch in range(3):
        writer = sink.create_writer(kit.attempt(epoch=epoch))
        ids = pa.array([Decimal(key)], type_)
        writer.write(pa.record_batch([ids, pa.array([f"v{epoch}"])], names=["id", "v"]))
        assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    assert [row["v"] for row in kit.rows(sink)] == ["v2"]


@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ntz"])
def test_a_time_key_is_found_again(tmp_path: Path, type_: str) -> None:
    """Spark and delta-rs cut a time's bounds in the log to milliseconds, also the greatest."""
    schema = (Column("id", type_), Column("v", "string"))
    sink = DeltaSink(str(tmp_path / "t"), create_table=True, keys=["id"])
    committer = sink.create_committer(kit.driver(schema=schema))
    committer.preflight()
    at = pa.timestamp("us", None if type_.endswith("ntz") else "UTC")
    for epoch in range(3):
        writer = sink.create_writer(kit.attempt(epoch=epoch))
        ids = pa.array([1_700_000_000_123_456], at)
        writer.write(pa.record_batch([ids, pa.array([f"v{epoch}"])], names=["id", "v"]))
        assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    assert [row["v"] for row in kit.rows(sink)] == ["v2"]
    entry = Path(sink.path, "_delta_log", f"{1:020}.json").read_text()
    assert entry.count('22:13:20.123Z\\"' if type_ == "timestamp" else '22:13:20.123\\"') == 2


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_a_time_after_the_year_9999_is_found_again(tmp_path: Path, kind: str) -> None:
    schema = (Column("id", "bigint"), Column("at", kind))
    sink = DeltaSink(str(tmp_path / "t"), create_table=True, keys=["id", "at"])
    committer = sink.create_committer(kit.driver(schema=schema))
    zone = None if kind.endswith("ntz") else "UTC"
    at = pa.date32() if kind == "date" else pa.timestamp("us", zone)
    far = pa.array([3_000_000, -800_000], pa.int32()).cast(pa.date32()).cast(at)
    for epoch in range(3):
        committer.preflight()
        writer = sink.create_writer(kit.attempt(epoch=epoch))
        writer.write(pa.record_batch([[1, 2], far], names=["id", "at"]))
        assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    assert kit.opened(sink).count() == 2


@pytest.mark.parametrize("name", ["a b", "", "a=b", "a,b"])
def test_names_that_spark_refuses_in_a_new_table(tmp_path: Path, name: str) -> None:
    sink = DeltaSink(str(tmp_path / "t"), create_table=True)
    for column in (Column(name, "int"), Column("s", f"struct<{name}:int>")):
        if "," not in name or column.name == name:
            # The text of a struct cannot tell a field with an empty name.
            match = "has no counterpart" if not name and column.name else "named .*rename"
            with pytest.raises(PreflightError, match=match):
                sink.create_committer(kit.driver(schema=(column,))).preflight()


@pytest.mark.parametrize("far", ["at", "all", "neither"])
def test_far_times_that_delta_rs_takes_for_others(tmp_path: Path, far: str) -> None:
    """Spark's default for a time is INT96. The rewritten rows would have other times."""
    at = pa.timestamp("us", "UTC")
    fields = [("id", pa.int64()), ("text", pa.string()), ("at", at), ("all", pa.list_(at))]
    sink = made(tmp_path / "orders", schema=pa.schema(fields))
    year_9999 = 253_402_214_400_000_000
    given = {"id": [1, 2], "text": ["old"] * 2}
    given["at"] = pa.array([-1, year_9999 if far == "at" else 1], at)
    given["all"] = pa.array([[year_9999 if far == "all" else 1], None], pa.list_(at))
    path = Path(sink.path, "theirs.parquet")
    options = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    pq.write_table(pa.table(given, pa.schema(fields)), path, **options)
    low, high = "1969-12-31T23:59:59.999Z", f"{9999 if far == 'at' else 1970}-01-01T00:00:00.000Z"
    figures = {"numRecords": 2, "minValues": {"at": low}, "maxValues": {"at": high}}
    action = AddAction(path.name, path.stat().st_size, {}, 0, True, json.dumps(figures))
    table = DeltaTable(sink.path)
    table.create_write_transaction([action], "append", table.schema(), [])
    committer = sink.create_committer(driver())
    staged = write(sink, [(1, "new", "update")], 1)
    if far == "neither":
        committer.preflight()
        assert committer.commit(staged) == [CommitOutcome.COMMITTED]
        rows = {row["id"]: (row["text"], row["at"].year) for row in kit.rows(sink)}
        assert rows == {1: ("new", 1969), 2: ("old", 1970)}
        return
    with pytest.raises(CommitFailedError, match=r"INT96.*TIMESTAMP_MICROS, and start"):
        committer.commit(staged)
    if far == "at":
        with pytest.raises(PreflightError, match="INT96"):
            committer.preflight()


def test_not_a_number_is_found_after_a_merge(tmp_path: Path) -> None:
    """To delta-rs, as to Spark, it is above all numbers."""
    x = pa.array([1.0, float("nan")])
    nested = pa.StructArray.from_arrays([x], ["x"])
    rows = pa.table({"id": [1, 2], "text": ["a", "b"], "x": x, "who": nested})
    sink = made(tmp_path / "orders", schema=rows.schema)
    write_deltalake(sink.path, rows, mode="append")
    commit(sink, write(sink, [(1, "new", "update"), (2, "new", "update")], 0))
    for where in ("x > 5", "isnan(x)", "who.x > 5", "id > 1", "x > 5 AND id = 2"):
        query = QueryBuilder().register("t", kit.opened(sink))
        found = pa.table(query.execute(f"SELECT id, text FROM t WHERE {where}").read_all())
        assert found.to_pylist() == [{"id": 2, "text": "new"}], where
    actions = pa.table(kit.opened(sink).get_add_actions(flatten=True)).to_pylist()
    assert [(action["min.id"], action["max.id"]) for action in actions] == [(1, 2)]


@pytest.mark.parametrize("op", ["update", "delete"])
def test_a_text_key_above_its_bound_is_found_again(tmp_path: Path, op: str) -> None:
    """Older writers of Spark's end a long text's bound in U+FFFD, above all of UTF-16 that they cut
    off; in UTF-8 letters beyond U+FFFF are above it."""
    key = "a" * 32 + "\U0001f600"
    sink = made(tmp_path / "orders", keys=["text"])
    path = Path(sink.path, "theirs.parquet")
    pq.write_table(pa.table({"id": [1], "text": [key], "note": ["old"]}, TABLE), path)
    bounds = {"minValues": {"text": key[:32]}, "maxValues": {"text": key[:32] + "\ufffd"}}
    figures = json.dumps({"numRecords": 1, **bounds, "nullCount": {"text": 0}})
    table = DeltaTable(sink.path)
    action = AddAction(path.name, path.stat().st_size, {}, 0, True, figures)
    table.create_write_transaction([action], "append", table.schema(), [])
    commit(sink, write(sink, [(2, key, op)], 0))
    changed = {"id": 2, "text": key, "note": "old"}
    assert kit.rows(sink) == ([] if op == "delete" else [changed])


def test_a_bound_below_its_texts_hides_no_far_time(tmp_path: Path) -> None:
    """See `misread`: the file may have the key, so it is looked at."""
    key, at = "a" * 32 + "\U0001f600", pa.timestamp("us", "UTC")
    fields = [("id", pa.int64()), ("text", pa.string()), ("all", pa.list_(at))]
    sink = made(tmp_path / "orders", schema=pa.schema(fields), keys=["text"])
    far = pa.array([[253_402_214_400_000_000]], pa.list_(at))
    path = Path(sink.path, "theirs.parquet")
    pq.write_table(
        pa.table({"id": [1], "text": [key], "all": far}, pa.schema(fields)), path,
        use_deprecated_int96_timestamps=True, store_schema=False,
    )  # fmt: skip
    bounds = {"minValues": {"text": key[:32]}, "maxValues": {"text": key[:32] + "\ufffd"}}
    action = AddAction(
        path.name, path.stat().st_size, {}, 0, True, json.dumps({"numRecords": 1, **bounds})
    )
    table = DeltaTable(sink.path)
    table.create_write_transaction([action], "append", table.schema(), [])
    with pytest.raises(CommitFailedError, match="INT96"):
        sink.create_committer(driver()).commit(write(sink, [(2, key, "update")], 0))


def test_delta_rs_finds_each_number_that_a_merge_has_written(tmp_path: Path) -> None:
    """A column without bounds beside others with them is null to its `to_pyarrow_dataset`, unless
    the table says which columns have bounds (https://github.com/delta-io/delta-rs/issues/3173)."""
    kinds = {"id": "bigint", "a.b": "int", "f": "double", "g": "float", "ok": "boolean",
             "c": "decimal(20,2)", "d": "decimal(15,2)", "at": "timestamp",
             "who": "struct<x:double>"}  # fmt: skip
    schema = tuple(Column(name, kind) for name, kind in kinds.items())
    sink = DeltaSink(str(tmp_path / "t"), create_table=True, keys=["id"])
    committer = sink.create_committer(kit.driver(schema=schema))
    committer.preflight()
    rows = pa.table(
        {
            "id": [1, 2], "a.b": pa.array([1, 2], pa.int32()), "f": [1.5, float("nan")],
            "g": pa.array([1.5, 2.5], pa.float32()),
            "c": pa.array([Decimal("9" * 18 + ".99"), Decimal(1)], pa.decimal128(20, 2)),
            "d": pa.array([Decimal("1.25"), Decimal("2.25")], pa.decimal128(15, 2)),
            "ok": [True, False], "at": pa.array([1, 10**9], pa.timestamp("us", "UTC")),
            "who": [{"x": 1.5}, {"x": 2.5}],
        }
    )  # fmt: skip
    for epoch in range(2):
        writer = sink.create_writer(kit.attempt(epoch=epoch))
        writer.write(rows.to_batches()[0])
        assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    dataset = kit.opened(sink).to_pyarrow_dataset()
    for name in kinds.keys() - {"who"}:
        for value in rows[name]:
            wanted = (
                pc.is_nan(pc.field(name))
                if value.as_py() != value.as_py()
                else (pc.field(name) == value)
            )
            assert dataset.to_table(filter=wanted).num_rows == 1, (name, value)
