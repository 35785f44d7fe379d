"""FileSink beyond the conformance suite: bytes of each format as readers see them, and its checks.

How: writers and committers on a real directory; read back by pyarrow.dataset, pandas and csv.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from tidemark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from tidemark.model.errors import ConfigurationError, PreflightError, WriteRefusedError
from tidemark.model.schema import Column
from tidemark.sinks.files import FileSink
from tidemark.sinks.files.formats import JsonEncoder, ParquetEncoder

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
    assert list(committer.commit(committables)) == [CommitOutcome.COMMITTED]
    return Path(sink.path) / committables[0].final_name


def test_a_format_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="format is 'orc'; allowed are 'parquet'"):
        FileSink("/data/x", format="orc")


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
    assert lines.endswith(" AS value")
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
    assert len(list((tmp_path / "_tidemark").rglob(f"*.{form}"))) == 2
    seen = pa.dataset.dataset(tmp_path, format=form).to_table()
    assert seen.to_pydict() == {"n": [1, 2]}
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
    monkeypatch.setattr("tidemark.sinks.files.formats.ROW_GROUP_BYTES", 8 * 250)
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


def test_json_lines_of_sliced_and_odd_values(tmp_path: Path) -> None:
    texts = [
        json.dumps({"s": s}, ensure_ascii=False) for s in ["a", "ü\n\u2028", "", "🙂", '"', "z"]
    ]
    with (tmp_path / "x.json").open("wb") as file:
        encoder = JsonEncoder(file, pa.schema([("value", pa.string())]))
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
        '"","1970-01-01 00:00:00.000000Z",true',
        ',"1970-01-01 00:00:00.000000Z",true',
    ]


def test_a_torn_pending_file_is_lost_not_published(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.create_committer(DRIVER).preflight()
    writer = sink.create_writer(attempt())
    writer.write(pa.record_batch({"n": [1, 2]}))
    (committable,) = writer.prepare_commit()
    pending = tmp_path / "_tidemark/pending" / committable.handle
    pending.write_bytes(pending.read_bytes()[:-1])
    assert sink.create_committer(DRIVER).commit([committable]) == [CommitOutcome.LOST]
    assert list(tmp_path.glob("part-*")) == []


def test_a_missing_directory_is_retried_when_it_may_come_back(tmp_path: Path) -> None:
    # A file system that is unmounted: the answer must be neither LOST nor a guess.
    sink = FileSink(tmp_path / "mount")
    sink.create_committer(DRIVER).preflight()
    writer = sink.create_writer(attempt())
    writer.write(pa.record_batch({"n": [1]}))
    committables = writer.prepare_commit()
    committer = sink.create_committer(DRIVER)
    (tmp_path / "mount").rename(tmp_path / "away")
    assert committer.commit(committables) == [CommitOutcome.RETRY]
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
    target = {"a file": "file", "below a file": "file/sub", "spark": "spark"}[kind]
    says = "Spark's own streaming file sink" if kind == "spark" else "cannot be used"
    with pytest.raises(PreflightError, match=f"sink 'out': directory .*{says}"):
        FileSink(tmp_path / target).create_committer(DRIVER).preflight()


def test_preflight_leaves_nothing_but_the_pending_area(tmp_path: Path) -> None:
    FileSink(tmp_path / "new/dir").create_committer(DRIVER).preflight()
    files = [p.name for p in (tmp_path / "new/dir").rglob("*") if p.is_file()]
    assert files == []
    assert (tmp_path / "new/dir/_tidemark/pending/job/out").is_dir()
