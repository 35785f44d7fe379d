"""FileSink beyond the conformance suite: bytes of each format as readers see them, and its checks.

How: writers and committers on a real directory; read back by pyarrow.dataset, pandas, DuckDB and
csv. Spark's own reader: `tests/spark/sinks/test_file_sink.py`; HDFS and S3: `tests/integration`.
"""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import (
    ConfigurationError,
    CorruptRecordError,
    PreflightError,
    WriteRefusedError,
)
from seamark.model.schema import Column
from seamark.sinks.files import FileSink, pending_file
from seamark.sinks.files.formats import Format
from seamark.sinks.files.pending_file import PendingFile
from seamark.sinks.internal import partitions
from seamark.sinks.internal.parquet import ParquetEncoder
from seamark.verify.conformance.steps import answered

DRIVER = SinkContext("job", "job", "out", 1, 5.0)


def attempt(epoch: int = 0, partition: int = 0) -> WriterContext:
    return WriterContext("job", "out", 1, epoch, partition, 0, epoch - 1)


def publish(sink: FileSink, *batches: pa.RecordBatch, epoch: int = 0) -> Path:
    committer = sink.create_committer(DRIVER)
    committer.preflight()
    writer = sink.create_writer(attempt(epoch))
    for batch in batches:
        writer.write(batch)
    committables = writer.prepare_commit()
    assert set(committer.commit(committables)) == {CommitOutcome.COMMITTED}
    return Path(sink.path) / committables[0].handle


def duckdb_rows(pattern: str, columns: str = "*") -> list[tuple[object, ...]]:
    return duckdb.sql(f"SELECT {columns} FROM '{pattern}' ORDER BY ALL").fetchall()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": "gs://bucket/x"}, "path is 'gs://bucket/x', .*or a DeltaSink there"),
        ({"format": "orc"}, "format is 'orc'; allowed are 'parquet', 'json', 'csv'"),
        ({"format": "csv", "compression": "snappy"}, "compression of csv is 'snappy'; allowed are"),
        ({"compression": "brotli"}, "compression of parquet is 'brotli'; allowed are 'snappy'"),
        ({"partition_by": "day"}, r"partition_by is 'day'; give a list of column names"),
        ({"partition_by": [1]}, "give a list of column names"),
        ({"partition_by": ["n", ".x"]}, "partition_by has '.x', .*; rename the column"),
        ({"partition_by": ["day", "Day"]}, "names a column twice"),
        ({"header": False}, "settings of the format 'csv'; the format here is 'parquet'"),
        ({"format": "json", "null_value": "x"}, "settings of the format 'csv'"),
        ({"format": "csv", "header": 1}, "header is 1; give True or False"),
        ({"format": "csv", "delimiter": ";;"}, "delimiter is ';;'; give one character"),
        ({"format": "csv", "delimiter": '"'}, "no quotation mark"),
        ({"format": "csv", "null_value": "a,b"}, "null_value is 'a,b'; give a text without"),
        ({"format": "csv", "null_value": "\\", "escape": "\\"}, "does not end in the escape"),
        ({"format": "csv", "delimiter": "\\", "escape": "\\"}, "line end or escape"),
        ({"format": "csv", "escape": "'"}, "escape is"),
        ({"format": "json", "escape": "\\"}, "settings of the format 'csv'"),
        ({"hadoop": {"fs.s3a.secret.key": 1}}, "hadoop is a dict; give a dict of texts"),
    ],
)
def test_settings_that_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^FileSink.*{says}"):
        FileSink(**{"path": "/data/x", **options})


SCHEMA = (
    Column("id", "bigint"),
    Column("country", "string"),
    Column("day", "date"),
    Column("at", "timestamp"),
    Column("tags", "array<string>"),
)


@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        (
            {"partition_by": ["land"]},
            SCHEMA,
            "partition column 'land' is not in .* which has id, country",
        ),
        ({"partition_by": ["Country"]}, SCHEMA, "partition column 'Country' is not in"),
        ({"partition_by": ["day", "id"]}, SCHEMA[::2][:1] + SCHEMA[2:3], "takes every column"),
        ({"partition_by": ["at"]}, SCHEMA, "column 'at' has type timestamp; .*to_date"),
        ({"partition_by": ["tags"]}, SCHEMA, "column 'tags' has type array<string>"),
        ({"format": "csv", "partition_by": ["day"]}, SCHEMA[:1] + SCHEMA[2:3], "'id' as the only"),
        ({}, (Column("x", "interval day"),), "column 'x' has type interval day"),
    ],
)
def test_schemas_that_are_refused(
    options: dict[str, object], schema: tuple[Column, ...], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"files in /x.*: .*{says}"):
        FileSink("/x", **options).select_expressions(schema)


def test_partition_columns_come_last_and_as_text() -> None:
    by = {"partition_by": ["day", "country"]}
    as_text = ["CAST(`day` AS STRING) AS `day`", "CAST(`country` AS STRING) AS `country`"]
    assert FileSink("/x", **by).select_expressions(SCHEMA) == ["`id`", "`at`", "`tags`", *as_text]
    lines, *rest = FileSink("/x", "json", **by).select_expressions(SCHEMA)
    assert "struct(`id`, `at`, `tags`)" in lines
    assert rest == as_text
    assert FileSink("/x", **by).describe() == "parquet files in /x by day, country"
    one = FileSink("/x", "csv", partition_by=["day"], null_value="NULL")
    assert len(one.select_expressions(SCHEMA[:1] + SCHEMA[2:3])) == 2


def test_dead_letters_have_the_columns_of_the_format(tmp_path: Path) -> None:
    letters = pa.record_batch(
        {"sink": ["s"], "epoch": [7], "reason": ["too big"], "row_json": ['{"n": 1.0}']}
    )
    plain = FileSink(tmp_path / "a", "csv", partition_by=["epoch", "sink"])
    path = publish(plain, plain.from_dead_letters(letters))
    assert path.parent.relative_to(tmp_path / "a").as_posix() == "epoch=7/sink=s"
    assert path.read_text() == 'reason,row_json\ntoo big,"{""n"": 1.0}"\n'
    lines = FileSink(tmp_path / "b", "json", partition_by=["sink"])
    path = publish(lines, lines.from_dead_letters(letters))
    assert path.read_text() == '{"epoch": 7, "reason": "too big", "row": {"n": 1.0}}\n'
    with pytest.raises(
        ConfigurationError, match="the partition column 'day' is not in the DataFrame"
    ):
        FileSink("/x", partition_by=["day"]).from_dead_letters(letters)
    with pytest.raises(ConfigurationError, match="names 'row_json', the refused row itself"):
        FileSink("/x", "json", partition_by=["row_json"]).from_dead_letters(letters)


def test_rows_go_to_the_directory_of_their_values_and_keep_their_order(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, partition_by=["day", "country"])
    n = 1000
    days = [f"2026-01-{1 + i % 3:02d}" for i in range(n)]
    countries = [["DE", "a/b=c %", "", None][i % 4] for i in range(n)]
    batch = pa.record_batch({"id": list(range(n)), "day": days, "country": countries})
    publish(sink, batch.slice(0, 400), batch.slice(400))
    names = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("part-*")}
    values = ["DE", "a%2Fb%3Dc %25", partitions.NULL_NAME]
    assert names == {f"day=2026-01-0{d}/country={v}" for d in (1, 2, 3) for v in values}
    assert len(list(tmp_path.rglob("part-*"))) == 9
    assert not list((tmp_path / "_seamark").rglob("*=*"))  # pending directories are taken away

    seen = pa.dataset.dataset(tmp_path, partitioning="hive").to_table().sort_by("id")
    assert seen["id"].to_pylist() == list(range(n))
    assert seen["country"].to_pylist() == [c or None for c in countries]
    for path in tmp_path.rglob("part-*"):
        ids = pa.parquet.ParquetFile(path).read()["id"].to_pylist()
        assert ids == sorted(ids)
    counted = duckdb_rows(f"{tmp_path}/**/*.parquet", "count(*), count(DISTINCT id)")
    assert counted == [(n, n)]


def test_names_are_escaped_as_spark_does() -> None:
    assert partitions.directory_part("a=b", "x:y\\z") == "a%3Db=x%3Ay%5Cz"
    assert partitions.directory_part("c", None) == f"c={partitions.NULL_NAME}"
    assert partitions.directory_part("c", "ü é.-_~+,;!@&()|<>$") == "c=ü é.-_~+,;!@&()|<>$"


def test_many_directories_open_few_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.sinks.files.writer.MOST_OPEN_FILES", 4)
    sink = FileSink(tmp_path, "csv", partition_by=["k"], null_value="NULL")
    batch = pa.record_batch({"id": list(range(60)), "k": [str(i % 6) for i in range(60)]})
    publish(sink, batch.slice(0, 30), batch.slice(30))
    files = list(tmp_path.rglob("part-*"))
    assert 6 < len(files) <= 12
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert sorted(int(line) for line in lines if line != "id") == list(range(60))


def test_open_files_share_what_they_may_keep_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.sinks.files.writer.BUFFERED_BYTES", 1000)
    sink = FileSink(tmp_path, partition_by=["k"])
    batches = [
        pa.record_batch({"id": [i, i + 1], "k": ["a", "a" if i % 10 else "b"]}) for i in range(200)
    ]
    publish(sink, *batches)
    groups = {
        path.parent.name: pa.parquet.ParquetFile(path).num_row_groups
        for path in tmp_path.rglob("part-*")
    }
    assert groups["k=a"] > groups["k=b"] >= 1


def test_an_attempt_that_gives_up_takes_all_its_files_away(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, partition_by=["k"])
    sink.create_committer(DRIVER).preflight()
    for ended in (False, True):
        writer = sink.create_writer(attempt())
        writer.write(pa.record_batch({"id": [1, 2], "k": ["a", "b"]}))
        if ended:
            writer.prepare_commit()
        assert len(list(tmp_path.rglob("*.pending"))) == 2
        writer.abort()
        assert list(tmp_path.rglob("*.pending")) == []


def test_the_names_of_pending_files_say_whose_they_are() -> None:
    path = pending_file.new_path(attempt(7, 3), "k=%2F/d=ü", "csv.gz")
    mine = PendingFile(path, "job", "out", 1, 7, -1, -1, "u")
    assert pending_file.found(path, "job", "out", "u") == mine
    assert pending_file.found(path, "job", "other") is None
    assert pending_file.found("k=1/part-00000-1c2d-c000.snappy.parquet", "job", "out") is None
    names = [pending_file.new_path(attempt(epoch), "", "json") for epoch in (2, 10, 100)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "handle", ["../x", "k=1/../../x", "/etc/passwd", "k=1", "{}/x", "a=/../{}"]
)
def test_a_handle_that_leads_elsewhere_is_refused(handle: str) -> None:
    path = handle.format(pending_file.new_path(attempt(), "", "csv"))
    with pytest.raises(CorruptRecordError, match="not the path of a pending file"):
        PendingFile(path, "j", "s", 1, 1, 1, 1)
    good = PendingFile(pending_file.new_path(attempt(), "", "csv"), "j", "s", 1, 1, 1, 1)
    object.__setattr__(good, "handle", path)
    sink = FileSink("/tmp/files")
    with pytest.raises(CorruptRecordError, match="not the path of a pending file"):
        sink.load(sink.dump(good))


def test_expressions() -> None:
    schema = (
        Column("a`b", "int"),
        Column("price", "decimal(10,2)"),
        Column("window", "struct<start:timestamp,end:timestamp>"),
        Column("x", "double"),
    )
    assert FileSink("/x").select_expressions(schema) == ["`a``b`", "`price`", "`window`", "`x`"]
    (lines,) = FileSink("/x", "json").select_expressions(schema)
    assert lines.startswith("to_json(struct(`a``b`, `price`, `window`, `x`), map('timeZone'")
    assert lines.endswith(" AS `_seamark_json`")
    as_csv = FileSink("/x", "csv").select_expressions(schema)
    assert as_csv[:2] == ["`a``b`", "CAST(`price` AS STRING) AS `price`"]
    assert as_csv[2].startswith("to_json(`window`, map(")
    assert as_csv[3] == "CAST(`x` AS STRING) AS `x`"


def test_binary_in_csv_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"column 'raw' has type binary.*base64"):
        FileSink("/x", "csv").select_expressions((Column("raw", "binary"),))
    assert FileSink("/x").select_expressions((Column("raw", "binary"),)) == ["`raw`"]


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_readers_of_the_directory_see_no_pending_file(tmp_path: Path, form: str) -> None:
    sink = FileSink(tmp_path, form)
    name = "value" if form == "json" else "n"
    batches = [
        pa.record_batch({name: ['{"n":1}', '{"n":2}'] if form == "json" else [1, 2]})
        for _ in range(2)
    ]
    publish(sink, batches[0], epoch=0)
    pending = sink.create_writer(attempt(epoch=1))
    pending.write(batches[1])
    open_ = sink.create_writer(attempt(epoch=2))
    open_.write(batches[1])
    pending.prepare_commit()
    assert len(list((tmp_path / "_seamark").rglob(f"*.{form}.pending"))) == 2
    seen = pa.dataset.dataset(tmp_path, format=form).to_table()
    assert seen.to_pydict() == {"n": [1, 2]}
    assert duckdb_rows(f"{tmp_path}/**/*.{form}") == [(1,), (2,)]
    if form == "parquet":
        assert pd.read_parquet(tmp_path)["n"].tolist() == [1, 2]
        assert pa.parquet.read_table(tmp_path)["n"].to_pylist() == [1, 2]
    open_.abort()


def test_parquet_keeps_types_and_reads_times_as_utc(tmp_path: Path) -> None:
    instant = 1_782_921_600_123_456  # 2026-07-01T16:00:00.123456Z
    zone = pa.timestamp("us", "America/New_York")
    batch = pa.record_batch(
        {
            "t": pa.array([instant, None], zone),
            "local": pa.array([instant, None], pa.timestamp("us")),
            "w": pa.array([{"start": instant}, None], pa.struct([("start", zone)])),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "small": pa.array([1, None], pa.int8()),
        }
    )
    read = pa.parquet.read_table(publish(FileSink(tmp_path), batch))
    utc = pa.timestamp("us", "UTC")
    assert read.schema.field("t").type == utc
    assert read.schema.field("w").type == pa.struct([("start", utc)])
    assert read.schema.field("local").type == pa.timestamp("us")
    assert read.schema.field("small").type == pa.int8()
    assert read["t"].cast(pa.int64()).to_pylist() == [instant, None]
    assert read["m"].to_pylist() == [[("k", 1)], None]
    frame = pd.read_parquet(tmp_path)
    assert frame["t"][0] == pd.Timestamp("2026-07-01T16:00:00.123456Z")
    assert frame["local"][0] == pd.Timestamp("2026-07-01T16:00:00.123456")


def test_parquet_gathers_small_batches_into_one_row_group(tmp_path: Path) -> None:
    batches = [pa.record_batch({"n": list(range(i, i + 10))}) for i in range(0, 1000, 10)]
    file = pa.parquet.ParquetFile(publish(FileSink(tmp_path), *batches))
    assert file.metadata.num_row_groups == 1
    assert file.read()["n"].to_pylist() == list(range(1000))


def test_parquet_starts_a_row_group_when_it_has_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.sinks.internal.parquet.ROW_GROUP_BYTES", 8 * 250)
    batches = [pa.record_batch({"n": list(range(i, i + 100))}) for i in range(0, 1000, 100)]
    file = pa.parquet.ParquetFile(publish(FileSink(tmp_path), *batches))
    assert [file.metadata.row_group(i).num_rows for i in range(4)] == [300, 300, 300, 100]
    assert file.read()["n"].to_pylist() == list(range(1000))


def test_parquet_copies_the_batch_because_its_buffers_are_reused(tmp_path: Path) -> None:
    memory = np.arange(10)
    batch = pa.record_batch([pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(memory)])],
                            names=["n"])  # fmt: skip
    with (tmp_path / "x.parquet").open("wb") as file:
        encoder = ParquetEncoder(file, batch.schema)
        encoder.write(batch)
        memory[:] = -1
        encoder.close()
    assert pa.parquet.read_table(tmp_path / "x.parquet")["n"].to_pylist() == list(range(10))


def test_not_a_number_is_found_by_each_comparison(tmp_path: Path) -> None:
    """To DuckDB, as to Spark, it is above all numbers."""
    x = pa.array([1.0, None, float("nan")])
    who = pa.StructArray.from_arrays([x, x.cast(pa.float32())], ["x", "f"])
    path = publish(FileSink(tmp_path), pa.record_batch({"x": x, "who": who, "n": [1, 2, 3]}))
    for where in ("x > 5", "isnan(x)", "x = 'NaN'::DOUBLE", "who.x > 5", "who.f > 5"):
        assert duckdb.sql(f"SELECT n FROM '{path}' WHERE {where}").fetchall() == [(3,)], where
    group = pa.parquet.read_metadata(path).row_group(0)
    bounded = [n for n in range(4) if group.column(n).statistics]
    assert [group.column(number).path_in_schema for number in bounded] == ["n"]


def test_a_compression_is_that_of_the_file(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": [1, 2], "s": ["x", None]})
    for number, packed in enumerate(("snappy", "zstd", "gzip", "lz4", "none")):
        path = publish(FileSink(tmp_path / packed, compression=packed), batch, epoch=number)
        found = pa.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression
        assert found == {"none": "UNCOMPRESSED"}.get(packed, packed.upper())
    path = publish(FileSink(tmp_path / "csv", "csv", compression="gzip"), batch)
    assert path.name.endswith(".csv.gz")
    assert gzip.decompress(path.read_bytes()) == b"n,s\n1,x\n2,\n"
    assert duckdb_rows(f"{tmp_path}/csv/*.csv.gz") == [(1, "x"), (2, None)]
    lines = pa.record_batch({"value": ['{"n":1}', '{"n":2}']})
    path = publish(FileSink(tmp_path / "json", "json", compression="gzip"), lines)
    assert pd.read_json(path, lines=True)["n"].tolist() == [1, 2]


def test_json_lines_of_sliced_and_odd_values(tmp_path: Path) -> None:
    texts = [
        json.dumps({"s": s}, ensure_ascii=False) for s in ["a", "ü\n\u2028", "", "🙂", '"', "z"]
    ]
    with (tmp_path / "x.json").open("wb") as file:
        encoder = Format("json", "none").encoder(file, pa.schema([("value", pa.string())]))
        encoder.write(pa.record_batch({"value": texts}).slice(1, 3))
        encoder.write(pa.record_batch({"value": texts}).slice(4, 1))
        encoder.close()
    assert (tmp_path / "x.json").read_bytes() == ("\n".join(texts[1:5]) + "\n").encode()


def test_csv_tells_null_from_empty_and_quotes_by_rfc_4180(tmp_path: Path) -> None:
    values = ["plain", "", None, 'say "hi"', "a,b", "two\nlines", "ü"]
    batch = pa.record_batch(
        {
            "s": values,
            "t": pa.array([0] * 7, pa.timestamp("us", "Asia/Tokyo")),
            "b": pa.array([True] * 7),
        }
    )
    path = publish(FileSink(tmp_path, "csv"), batch.slice(0, 3), batch.slice(3))
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["s", "t", "b"]
    assert [row[0] for row in rows[1:]] == [v or "" for v in values]
    assert {tuple(row[1:]) for row in rows[1:]} == {("1970-01-01 00:00:00.000000Z", "true")}
    assert path.read_text().splitlines()[2:4] == [
        '"",1970-01-01 00:00:00.000000Z,true',
        ",1970-01-01 00:00:00.000000Z,true",
    ]


def test_csv_options(tmp_path: Path) -> None:
    values = ["a;b", "a,b", "NULL", "", None, " blank ", "x"]
    batch = pa.record_batch({"s;s": values, "n": [1, None, 3, 4, 5, 6, 7]})
    sink = FileSink(tmp_path, "csv", header=False, delimiter=";", null_value="NULL")
    assert publish(sink, batch).read_text() == (
        '"a;b";1\na,b;NULL\n"NULL";3\n"";4\nNULL;5\n" blank ";6\nx;7\n'
    )
    named = FileSink(tmp_path / "named", "csv", delimiter=";")
    assert publish(named, batch).read_text().startswith('"s;s";n\n')
    tabs = FileSink(tmp_path / "tabs", "csv", delimiter="\t")
    assert publish(tabs, batch.slice(0, 1)).read_text() == "s;s\tn\na;b\t1\n"
    mark = pa.record_batch({"\ufeffs": ["\ufeffx", "y"]})  # readers drop one that begins a file
    sink = FileSink(tmp_path / "mark", "csv", header=False)
    assert publish(sink, mark).read_text() == '"\ufeffx"\ny\n'
    assert publish(FileSink(tmp_path / "marked", "csv"), mark).read_text()[:5] == '"\ufeffs"\n'
    for number, wide in enumerate("│😀"):
        one = pa.record_batch({"s": [f"x{wide}y", "25"]})
        sink = FileSink(tmp_path / f"wide-{number}", "csv", header=False, delimiter=wide)
        assert publish(sink, one).read_text() == f'"x{wide}y"\n25\n'


def test_a_torn_pending_file_is_lost_not_published(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.create_committer(DRIVER).preflight()
    writer = sink.create_writer(attempt())
    writer.write(pa.record_batch({"n": [1, 2]}))
    (committable,) = writer.prepare_commit()
    pending = tmp_path / f"_seamark/pending/job/out/{committable.handle}.pending"
    pending.write_bytes(pending.read_bytes()[:-1])
    assert sink.create_committer(DRIVER).commit([committable]) == [CommitOutcome.LOST]
    assert list(tmp_path.glob("part-*")) == []


def test_a_missing_directory_is_retried_when_it_may_come_back(tmp_path: Path) -> None:
    # An unmounted file system: the answer must be neither LOST nor a guess.
    sink = FileSink(tmp_path / "mount")
    sink.create_committer(DRIVER).preflight()
    writer = sink.create_writer(attempt())
    writer.write(pa.record_batch({"n": [1]}))
    committables = writer.prepare_commit()
    committer = sink.create_committer(DRIVER)
    (tmp_path / "mount").rename(tmp_path / "away")
    assert answered(committer.commit, committables, CommitOutcome.RETRY) == [CommitOutcome.RETRY]
    (tmp_path / "away").rename(tmp_path / "mount")
    assert committer.commit(committables) == [CommitOutcome.COMMITTED]


def test_a_machine_that_does_not_share_the_directory_writes_nothing(tmp_path: Path) -> None:
    # The driver's preflight ran elsewhere: to this machine the directory is an empty place.
    sink = FileSink(tmp_path / "data")
    (tmp_path / "data").mkdir()
    with pytest.raises(WriteRefusedError, match="executors share"):
        sink.create_writer(attempt()).write(pa.record_batch({"n": [1]}))
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("kind", ["a file", "below a file", "spark"])
def test_preflight_refuses_a_directory_that_cannot_serve(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "spark/_spark_metadata").mkdir(parents=True)
    (tmp_path / "spark/_spark_metadata/0").touch()
    target = {"a file": "file", "below a file": "file/sub", "spark": "spark"}[kind]
    says = "Spark's own streaming file sink" if kind == "spark" else "cannot be used"
    with pytest.raises(PreflightError, match=f"sink 'out': directory .*{says}"):
        FileSink(tmp_path / target).create_committer(DRIVER).preflight()


@pytest.mark.parametrize("at", ["", "data", "_seamark/deeper/still"])
@pytest.mark.parametrize("table", ["Delta", "Iceberg"])
def test_preflight_refuses_a_directory_in_a_table(tmp_path: Path, table: str, at: str) -> None:
    log = "_delta_log/0.json" if table == "Delta" else "metadata/00000-x.metadata.json"
    path = tmp_path / "100% lake" / log
    path.parent.mkdir(parents=True)
    path.touch()
    place = path.parent.parent
    with pytest.raises(PreflightError, match=f"lies in the {table} table {place}, whose"):
        FileSink(place / at).create_committer(DRIVER).preflight()
    assert [one.name for one in place.iterdir()] == [path.parent.name]
    FileSink(tmp_path / "metadata").create_committer(DRIVER).preflight()


@pytest.mark.parametrize("text", ["a" * 252, "ü" * 126, "=" * 84])
def test_the_name_of_a_directory_has_255_bytes(tmp_path: Path, text: str) -> None:
    sink = FileSink(tmp_path, partition_by=["day"])
    batch = pa.record_batch({"n": [1, 2], "day": ["x", text]})
    with pytest.raises(WriteRefusedError, match=r"column 'day': .* 255 bytes: day=.*left\(`day`"):
        publish(sink, batch)
    short = batch.set_column(1, "day", pa.array(["x", text[:-1]]))
    publish(sink, short)
    found = pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == short.to_pylist()


def test_preflight_leaves_nothing_but_the_pending_area(tmp_path: Path) -> None:
    FileSink(tmp_path / "new/dir").create_committer(DRIVER).preflight()
    files = [p.name for p in (tmp_path / "new/dir").rglob("*") if p.is_file()]
    assert files == []
    assert (tmp_path / "new/dir/_seamark/pending/job/out").is_dir()


def test_a_partitions_directory_on_another_disk_is_refused_before_the_decision(
    tmp_path: Path,
) -> None:
    """No rename leads there: the epoch would be decided, and never visible."""
    here = tmp_path.stat().st_dev
    others = [at for at in ("/dev/shm", "/var/tmp", "/tmp") if Path(at).stat().st_dev != here]
    if not others:
        pytest.skip("this machine has one disk")
    with tempfile.TemporaryDirectory(dir=others[0]) as elsewhere:
        (tmp_path / "day=a").symlink_to(elsewhere)
        sink = FileSink(str(tmp_path), partition_by=["day"])
        sink.create_committer(DRIVER).preflight()
        writer = sink.create_writer(attempt())
        writer.write(pa.record_batch({"id": [1], "day": ["b"]}))
        with pytest.raises(WriteRefusedError, match=r"day=a is on another file system than"):
            writer.write(pa.record_batch({"id": [2], "day": ["a"]}))
        writer.abort()
