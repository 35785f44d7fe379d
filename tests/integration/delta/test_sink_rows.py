"""The files and tables of DeltaSink: every type there and back, partitions, the statistics for
skipping files, and each refusal at start. Real tables on a local disk."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import math
import pickle
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, Schema, TableFeatures, write_deltalake
from deltalake.schema import ArrayType, PrimitiveType

from seamark.contracts.sink import CommitOutcome, SinkContext
from seamark.model.errors import CommitFailedError, PreflightError, WriteRefusedError
from seamark.model.schema import Column
from seamark.sinks.delta import DeltaSink
from seamark.sinks.internal.partitions import split
from tests.every_type import TYPES, UTC
from tests.integration.delta.sink_kit import (
    SCHEMA,
    attempt,
    batch,
    driver,
    made,
    numbers,
    opened,
    rows,
)

COLUMNS = (
    Column("id", "bigint"),
    Column("part", "string"),
    Column("text", "string"),
)


def context(*columns: Column) -> SinkContext:
    return driver(schema=columns)


def write(sink: DeltaSink, *batches: pa.RecordBatch) -> Any:
    writer = sink.create_writer(attempt())
    for one in batches:
        writer.write(one)
    (committable,) = writer.prepare_commit()
    assert sink.create_committer(driver()).commit([committable]) == [CommitOutcome.COMMITTED]
    return committable


def test_every_type_goes_there_and_back(tmp_path: Path) -> None:
    columns = [Column(name, spark) for name, (spark, _, _) in TYPES.items()]
    sink = DeltaSink(str(tmp_path / "types"), create_table=True)
    assert sink.select_expressions(tuple(columns)) == [f"`{name}`" for name in TYPES]
    sink.create_committer(context(*columns)).preflight()
    arrays = [pa.array(values, arrow) for _, arrow, values in TYPES.values()]
    written = pa.record_batch(arrays, names=list(TYPES))
    write(sink, written)
    assert rows(sink) == [
        {**row, "at": row["at"] and row["at"].astimezone(UTC)} for row in written.to_pylist()
    ]
    # The sink takes its own table.
    sink.create_committer(context(*columns)).preflight()


def test_statistics_bound_what_is_there(tmp_path: Path) -> None:
    """A file skipped by its statistics holds none of the reader's rows."""
    sink = made(
        tmp_path / "statistics",
        schema=pa.schema([("n", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("s", pa.string()),
                          ("d", pa.date32()), ("f", pa.float64())]),
    )  # fmt: skip
    moment = datetime.datetime(2026, 1, 1, 0, 0, 0, 1, UTC)
    values = {
        "n": pa.array([3, None, -7], pa.int64()),
        "t": pa.array([moment, moment, None], pa.timestamp("us", "UTC")),
        "s": ["b", "a" * 65, "ä"],
        "d": pa.array([datetime.date(2026, 1, 2)] * 3, pa.date32()),
        "f": [2.5, 1.0, None],
    }
    committable = write(sink, pa.record_batch(values))
    assert json.loads(committable.data_files[0].statistics) == {
        "numRecords": 3,
        "minValues": {
            "n": -7,
            "t": "2026-01-01T00:00:00.000Z",
            "s": "a" * 64,
            "d": "2026-01-02",
            "f": 1.0,
        },
        "maxValues": {
            "n": 3,
            "t": "2026-01-01T00:00:00.001Z",
            "s": "ä",
            "d": "2026-01-02",
            "f": 2.5,
        },
        "nullCount": {"n": 1, "t": 1, "s": 0, "d": 0, "f": 1},
    }
    values["f"] = [float("nan"), 1.0, 2.0]
    write(sink, pa.record_batch({**values, "n": pa.array([50, 51, 52], pa.int64())}))
    for where, count in (
        ("n >= 50", 3), ("n = -7", 1), ("n IS NULL", 1), ("f < 1.5", 2), ("s > 'zz'", 2),
        ("f > 5", 1), ("isnan(f)", 1), ("f = 'NaN'::DOUBLE", 1), ("f IS NULL", 1),
        ("t >= '2026-01-01T00:00:00.000001Z'", 4), ("d = '2026-01-02'", 6),
    ):  # fmt: skip
        query = QueryBuilder().register("t", opened(sink))
        answer = pa.table(query.execute(f"SELECT count(*) FROM t WHERE {where}").read_all())
        assert answer.column(0).to_pylist() == [count], where


NUMBERS = pa.schema(
    [("id", pa.int64()), ("f", pa.float64()), ("g", pa.float32()), ("c", pa.decimal128(9, 2)),
     ("e", pa.decimal128(38, 10)), ("s", pa.string()), ("ok", pa.bool_())]
)  # fmt: skip
TYPES_IN_SQL = {"id": "BIGINT", "f": "DOUBLE", "c": "DECIMAL(9,2)", "e": "DECIMAL(38,10)"}
D, NAN = decimal.Decimal, math.nan


@pytest.mark.parametrize(
    ("more", "bounded"),
    [
        ({}, True),
        ({"f": [-0.0, 0.0], "g": [0.1, -1e-38], "c": [D("0.07"), D("-9999999.99")]}, True),
        ({"s": ["a" * 64 + "b", "a" * 200], "e": [D("0.0001"), D("99999.1234567891")]}, True),
        ({"s": [None, None], "f": [None, 2.5]}, True),
        ({"f": [NAN, 1.0]}, False),
        ({"g": [math.inf, 1.0]}, False),
        ({"e": [D("12345678901234567890.1"), D("1.5")]}, False),
        ({"e": [D("1E-10"), D("1.5")]}, False),
        ({"s": ["a" * 64 + "\U0010ffff", "a"]}, False),
    ],
)
def test_each_reader_finds_each_value(tmp_path: Path, more: dict[str, Any], bounded: bool) -> None:
    """Beside a column with bounds one without any is null to delta-rs's `to_pyarrow_dataset`."""
    sink = made(tmp_path / "numbers", schema=NUMBERS)
    values = {"id": [1, 2], "f": [1.5, -2.5], "g": [1.5, 2.5], "c": [D("1.50"), D("2.00")],
              "e": [D("0.5"), D("-0.5")], "s": ["x", "y"], "ok": [True, False]} | more  # fmt: skip
    batch = pa.record_batch(
        [pa.array(values[field.name], field.type) for field in NUMBERS], schema=NUMBERS
    )
    committable = write(sink, batch)
    assert ("minValues" in json.loads(committable.data_files[0].statistics)) == bounded
    dataset = opened(sink).to_pyarrow_dataset()
    query = QueryBuilder().register("t", opened(sink))
    for name, value in [(n, v) for n in NUMBERS.names for v in batch.column(n)]:
        if value.as_py() is None or value.as_py() != value.as_py():
            continue
        wanted = sum(one.as_py() == value.as_py() for one in batch.column(name))
        assert dataset.to_table(filter=pc.field(name) == value).num_rows == wanted, (name, value)
        if name not in ("g", "ok"):
            plain = f"{value.as_py():f}" if name in "ce" else value.as_py()
            text = f"'{plain}'::{TYPES_IN_SQL.get(name, 'VARCHAR')}"
            found = query.execute(f"SELECT * FROM t WHERE {name} = {text}").read_all()
            assert pa.table(found).num_rows == wanted, (name, value)
    assert dataset.to_table(filter=pc.is_nan(pc.field("f"))).num_rows == more.get("f", []).count(
        NAN
    )


@pytest.mark.parametrize("text", ["\U0010ffff" * 16, "a\U00100000", "🙂", "ü" * 64, '"\\\n\0'])
def test_texts_of_any_character_are_found(tmp_path: Path, text: str) -> None:
    sink = made(tmp_path / "texts")
    for one in (text, "b"):
        write(sink, pa.record_batch([[1], [None], [one]], schema=SCHEMA))
    query = QueryBuilder().register("t", opened(sink))
    literal = " || ".join(f"chr({ord(character)})" for character in text)
    where = f"text = {literal}" if "\0" not in text else "text < 'a'"
    found = pa.table(query.execute(f"SELECT text FROM t WHERE {where}").read_all())
    assert found["text"].to_pylist() == [text]


def test_partitions_are_files_of_their_own(tmp_path: Path) -> None:
    sink = made(tmp_path / "by-part", partition_by=["part"])
    committable = write(sink, batch(range(10)), batch(range(10, 20)))
    assert sorted(numbers(sink)) == list(range(20))
    assert sorted(str(f.partition_values["part"]) for f in committable.data_files) == [
        "None", "odd / 1%", "ü:2",
    ]  # fmt: skip
    assert {Path(f.path).parent.name for f in committable.data_files} == {
        "part=__HIVE_DEFAULT_PARTITION__", "part=odd%20%2F%201%25", "part=%C3%BC%3A2",
    }  # fmt: skip


def test_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    sink = made(tmp_path / "many", partition_by=["part"])
    names = [f"p{n}" for n in range(600)]
    rows_of = [pa.record_batch([range(600), names, names], schema=SCHEMA) for _ in range(2)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 300, limits[1])
    )
    try:
        committable = write(sink, *rows_of)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    found = sorted(row["id"] for row in rows(sink))
    assert found == sorted(2 * [*range(600)])
    assert len({f.path for f in committable.data_files}) == len(committable.data_files) > 600


@pytest.mark.parametrize("text", ["a" * 251, "ü" * 42, "/" * 84, "ü" * 2000])
def test_a_partition_s_text_may_be_longer_than_a_name(tmp_path: Path, text: str) -> None:
    """Only delta-rs's MERGE makes a directory's name of it, and in the commit: no row may fail."""
    given = pa.record_batch([[1, 2], [text, text[:-1]], ["a", "b"]], schema=SCHEMA)
    sink = made(tmp_path / "long", partition_by=["part"])
    write(sink, given)
    assert sorted(rows(sink), key=lambda row: row["id"]) == given.to_pylist()
    by_key = made(tmp_path / "by key", partition_by=["part"])
    by_key = dataclasses.replace(by_key, keys=["id"])
    writer = by_key.create_selective_writer(attempt())
    refused = writer.write_accepted(given)
    taken = [] if len(text) == 2000 else [2]
    assert [one.index for one in refused] == ([0] if taken else [0, 1])
    assert "255 bytes" in refused[0].reason
    outcomes = by_key.create_committer(driver()).commit(writer.prepare_commit())
    assert outcomes == [CommitOutcome.COMMITTED] * len(taken)
    assert [row["id"] for row in rows(by_key)] == taken


def test_a_row_is_changed_beside_others_in_a_directory_of_such_a_name(tmp_path: Path) -> None:
    """A MERGE would write the others again, below the text's own name."""
    text = "ü" * 90
    given = pa.record_batch([[1, 2, 3], [text, text, "b"], ["a", "b", "c"]], schema=SCHEMA)
    changed = pa.record_batch([[1], ["b"], ["new"]], schema=SCHEMA)
    appending = made(tmp_path / "t", partition_by=["part"])
    by_key = dataclasses.replace(appending, keys=["id"])
    committer = by_key.create_committer(driver())
    committer.preflight()
    writer = by_key.create_writer(attempt(epoch=1))
    writer.write(changed)
    staged = list(writer.prepare_commit())
    write(appending, given)
    with pytest.raises(PreflightError, match=r"name of more than 255 bytes in .* 'part'; UPDATE"):
        by_key.create_committer(driver()).preflight()
    with pytest.raises(CommitFailedError, match="kept and not visible: UPDATE that text"):
        committer.commit(staged)
    opened(by_key).update(new_values={"part": "b"}, predicate=f"part = '{text}'")
    assert committer.commit(staged) == [CommitOutcome.COMMITTED]
    found = sorted((row["id"], row["part"], row["text"]) for row in rows(by_key))
    assert found == [(1, "b", "new"), (2, "b", "b"), (3, "b", "c")]


def test_a_text_with_the_name_of_nulls_directory_is_not_made_null(tmp_path: Path) -> None:
    """A MERGE writes both into one file, as null."""
    name = "__HIVE_DEFAULT_PARTITION__"
    given = pa.record_batch([[1, 2, 3], [None, name, "b"], ["a", "b", "c"]], schema=SCHEMA)
    appending = made(tmp_path / "t", partition_by=["part"])
    by_key = dataclasses.replace(appending, keys=["id"])
    committer = by_key.create_committer(driver())
    committer.preflight()
    writer = by_key.create_selective_writer(attempt(epoch=1))
    (refused,) = writer.write_accepted(given)
    assert (refused.index, name in refused.reason) == (1, True)
    assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    assert sorted((row["id"], row["part"]) for row in rows(by_key)) == [(1, None), (3, "b")]
    writer = by_key.create_writer(attempt(epoch=2))
    writer.write(given.take([0]))
    staged = list(writer.prepare_commit())
    write(appending, given)
    with pytest.raises(PreflightError, match=rf"\({name}\) in its partition column 'part'; UPDATE"):
        by_key.create_committer(driver()).preflight()
    with pytest.raises(CommitFailedError, match="kept and not visible: UPDATE that text"):
        committer.commit(staged)
    assert {row["part"] for row in rows(by_key)} == {None, name, "b"}


def test_rows_are_cut_by_every_partition_type() -> None:
    day = datetime.date(2026, 1, 2)
    given = pa.record_batch(
        {
            "n": [1, 2, 3, 4, 5, 6],
            "d": pa.array([day, None, day, day, None, day]),
            "b": [True, True, False, True, True, False],
            "i": pa.array([1, 1, 1, 1, 1, 2], pa.int8()),
            "s": ["", "x", None, "", "x", None],
        }
    )
    found = {
        values: part.column("n").to_pylist() for values, part in split(given, ["d", "b", "i", "s"])
    }
    assert found == {
        ("2026-01-02", "false", "1", None): [3],
        ("2026-01-02", "false", "2", None): [6],
        ("2026-01-02", "true", "1", None): [1, 4],
        (None, "true", "1", "x"): [2, 5],
    }
    assert [values for values, _ in split(given, [])] == [()]


def test_a_large_attempt_has_row_groups_worth_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    from seamark.sinks.internal import data_files

    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 10_000)
    sink = made(tmp_path / "large")
    committable = write(sink, *(batch(range(n, n + 100)) for n in range(0, 1000, 100)))
    groups = pq.ParquetFile(Path(sink.path, committable.data_files[0].path)).metadata.num_row_groups
    assert 1 < groups < 10
    assert json.loads(committable.data_files[0].statistics)["maxValues"]["id"] == 999
    assert sorted(numbers(sink)) == list(range(1000))


def test_a_machine_that_does_not_share_the_path_is_said(tmp_path: Path) -> None:
    writer = DeltaSink(str(tmp_path / "nowhere")).create_writer(attempt())
    with pytest.raises(WriteRefusedError, match="driver and all executors share"):
        writer.write(batch(range(1)))
    writer.abort()
    assert not (tmp_path / "nowhere").exists()


def refusal(sink: DeltaSink, *columns: Column) -> str:
    with pytest.raises(PreflightError) as found:
        sink.create_committer(context(*columns)).preflight()
    return str(found.value)


def test_a_missing_table_is_made_only_on_wish(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert "create_table=True" in refusal(DeltaSink(str(path)), *COLUMNS)
    assert not path.exists()
    sink = DeltaSink(str(path), ["part"], create_table=True)
    sink.create_committer(context(*COLUMNS)).preflight()
    assert opened(sink).metadata().partition_columns == ["part"]
    assert opened(sink).schema() == Schema.from_arrow(SCHEMA)
    assert opened(sink).protocol().min_writer_version == 2  # old readers can read it
    write(sink, batch(range(10)))
    assert sorted(numbers(sink)) == list(range(10))


def test_another_schema_is_refused_and_both_are_named(tmp_path: Path) -> None:
    sink = made(tmp_path / "orders")
    other = (Column("id", "int"), *COLUMNS[1:])
    message = refusal(sink, *other)
    assert "column 'id' is int in the DataFrame and bigint in the table" in message
    assert "The table has: id bigint, part string, text string" in message
    assert "The DataFrame has: id int, part string, text string" in message
    assert "no column 'more'" in refusal(sink, *COLUMNS, Column("more", "int"))
    sink.create_committer(context(*COLUMNS[:2])).preflight()  # the rest is null


def test_what_a_table_asks_of_a_writer_is_refused(tmp_path: Path) -> None:
    sink = made(tmp_path / "orders", partition_by=["part"])
    assert "set partition_by=['part']" in refusal(DeltaSink(sink.path), *COLUMNS)
    assert "is a partition column and is not in the DataFrame" in refusal(
        sink, COLUMNS[0], COLUMNS[2]
    )
    opened(sink).alter.add_constraint({"few": "id < 5"})
    assert "CHECK constraint (id < 5)" in refusal(sink, *COLUMNS)

    strict = DeltaSink(str(tmp_path / "strict"))
    fields = [Field("id", PrimitiveType("long"), nullable=False), Field("n", PrimitiveType("long"))]
    DeltaTable.create(strict.path, Schema(fields))
    assert "is NOT NULL and is not in the DataFrame" in refusal(strict, Column("n", "bigint"))
    assert "DROP NOT NULL" in refusal(strict, COLUMNS[0])

    nested = DeltaSink(str(tmp_path / "nested"))
    array = ArrayType(PrimitiveType("long"), contains_null=False)
    DeltaTable.create(nested.path, Schema([Field("list", array)]))
    assert "is or has NOT NULL" in refusal(nested, Column("list", "array<bigint>"))

    tracked = made(tmp_path / "tracked")
    opened(tracked).alter.add_feature(
        TableFeatures.DomainMetadata, allow_protocol_versions_increase=True
    )
    assert "the features domainMetadata" in refusal(tracked, *COLUMNS)

    generated = DeltaSink(str(tmp_path / "generated"))
    computed = Field("n", PrimitiveType("long"), metadata={"delta.generationExpression": "id + 1"})
    DeltaTable.create(generated.path, Schema([fields[1], computed][1:]))
    assert "generation expression" in refusal(generated, Column("n", "bigint"))

    blocked = DeltaSink(str(tmp_path / "file"))
    Path(blocked.path).write_text("not a directory")
    assert "cannot be used" in refusal(blocked, *COLUMNS)


def test_a_sink_holds_no_connection_and_its_secrets_are_not_shown() -> None:
    sink = DeltaSink("s3a://bucket/table/", storage_options={"fs.s3a.secret.key": "hush"})
    assert pickle.loads(pickle.dumps(sink)) == sink
    for shown in (repr(sink), sink.describe(), str(sink)):
        assert "hush" not in shown
        assert "s3a://bucket/table" in shown


def test_a_table_within_another_is_refused(tmp_path: Path) -> None:
    """VACUUM of the outer one deletes its files."""
    made(tmp_path / "lake")
    inner = made(tmp_path / "lake/daily")
    write_deltalake(inner.path, pa.Table.from_batches([batch([1])]), mode="append")
    (path,) = DeltaTable(inner.path).file_uris()
    outer = DeltaTable(str(tmp_path / "lake"))
    old = outer.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)  # as Spark's
    assert f"daily/{Path(path).name}" in old
    with pytest.raises(PreflightError, match=f"lies in the Delta table {tmp_path}/lake, whose"):
        inner.create_committer(driver()).preflight()
    new = DeltaSink(str(tmp_path / "lake/deep/new"), create_table=True)
    with pytest.raises(PreflightError, match=f"lies in the Delta table {tmp_path}/lake, whose"):
        new.create_committer(driver()).preflight()
    assert not (tmp_path / "lake/deep").exists()


@pytest.mark.parametrize("other", ["a.parquet", "day=1/a.parquet", "other/_delta_log/0.json"])
def test_no_table_is_made_beside_other_files(tmp_path: Path, other: str) -> None:
    """Its VACUUM would delete them."""
    path = tmp_path / "lake" / other
    path.parent.mkdir(parents=True)
    path.touch()
    new = DeltaSink(str(tmp_path / "lake"), create_table=True)
    words = f"has no table, but {other!r}, which the VACUUM of one here would delete"
    with pytest.raises(PreflightError, match=words):
        new.create_committer(driver()).preflight()
    assert [one for one in (tmp_path / "lake").rglob("*") if one.is_file()] == [path]
    (tmp_path / "empty/state").mkdir(parents=True)  # such as a mistake before leaves
    made(tmp_path / "empty")
    write_deltalake(new.path, pa.Table.from_batches([batch([1])]))  # somebody else's decision
    new.create_committer(driver()).preflight()


def test_a_column_that_no_delta_table_can_have_is_said(tmp_path: Path) -> None:
    twins = (Column("id", "bigint"), Column("s", "struct<a:int,A:int>"))
    sink = DeltaSink(str(tmp_path / "new"), create_table=True)
    with pytest.raises(PreflightError, match=r"Duplicate field name.*'A'; CAST or rename it"):
        sink.create_committer(driver(schema=twins)).preflight()
