"""Files of a size: `target_file_size=` of each sink of files, written by one task and committed.

How: a task's rows, of random letters that hardly compress; the sizes of the files in the target.
"""

from __future__ import annotations

import dataclasses
import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.datasource.options import sink_of_options, sink_options
from seamark.model.errors import ConfigurationError
from seamark.sinks.delta import DeltaSink
from seamark.sinks.files import FileSink
from seamark.sinks.iceberg import IcebergSink
from seamark.streaming.formats import Place, sink_of
from tests.integration.delta import sink_kit as delta
from tests.integration.iceberg import sink_kit as iceberg

MB = 2**20
TARGET = 2 * MB
CATALOG = {"type": "sql", "uri": "sqlite:////c.db", "warehouse": "file:///w"}


def batches(megabytes: int, parts: Sequence[str] = ("a",)) -> list[pa.RecordBatch]:
    """Return rows of about so many bytes, in batches as Spark's, each with rows of every part."""
    letters = random.Random(7).choices(string.ascii_letters + string.digits, k=MB)
    rows, made = "".join(letters), []
    for n in range(megabytes):
        texts = [rows[at : at + 100] for at in range(n, MB - 100, 105)]
        names = [parts[at % len(parts)] for at in range(len(texts))]
        made.append(pa.record_batch([range(len(texts)), names, texts], schema=delta.SCHEMA))
    return made


def written(sink: Any, kit: Any, rows: list[pa.RecordBatch]) -> list[int]:
    """Write the rows by one task, commit them, and return the sizes of its files."""
    committer = sink.create_committer(kit.driver())
    committer.preflight()
    writer = sink.create_writer(kit.attempt())
    for batch in rows:
        writer.write(batch)
    committables = writer.prepare_commit()
    assert set(committer.commit(committables)) == {CommitOutcome.COMMITTED}
    found = [
        [c.size_bytes] if isinstance(sink, FileSink) else c.sizes.values() for c in committables
    ]
    return [size for sizes in found for size in sizes]


def files(tmp_path: Path, **settings: Any) -> Any:
    return FileSink(str(tmp_path / "out"), **settings), delta


def delta_table(tmp_path: Path, **settings: Any) -> Any:
    return dataclasses.replace(delta.made(tmp_path / "table"), **settings), delta


def iceberg_table(tmp_path: Path, **settings: Any) -> Any:
    catalog = iceberg.catalog_at(tmp_path / "warehouse")
    return iceberg.made(catalog, **settings), iceberg


@pytest.mark.parametrize("make", [files, delta_table, iceberg_table])
def test_a_task_splits_its_rows_into_files_of_the_size(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    sink, kit = make(tmp_path, target_file_size="2MB")
    sizes = written(sink, kit, batches(9))
    assert all(0.8 * TARGET <= size <= 1.3 * TARGET for size in sizes[:-1])
    assert 3 <= len(sizes) <= 6
    assert 0 < sizes[-1] <= 1.3 * TARGET


def test_each_partition_has_files_of_the_size(tmp_path: Path) -> None:
    sink, kit = files(tmp_path, target_file_size=TARGET, partition_by=["part"])
    sizes = written(sink, kit, batches(9, ["a", "b"]))
    assert len(sizes) >= 4
    for name in ("a", "b"):
        found = sorted(path.stat().st_size for path in (tmp_path / f"out/part={name}").iterdir())
        assert all(0.8 * TARGET <= size <= 1.3 * TARGET for size in found[1:])


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_text_is_split_too(compression: str, tmp_path: Path) -> None:
    sink, kit = files(tmp_path, format="csv", compression=compression, target_file_size=TARGET)
    sizes = written(sink, kit, batches(9))
    assert len(sizes) >= 3
    assert all(0.9 * TARGET <= size <= 1.5 * TARGET for size in sizes[:-1])


def test_compressed_rows_make_files_of_the_size_too(tmp_path: Path) -> None:
    sink, kit = files(tmp_path, target_file_size=MB, compression="zstd")
    rows = pa.record_batch(
        [range(10_000), ["a"] * 10_000, [f"{n % 971:0100d}" for n in range(10_000)]],
        schema=delta.SCHEMA,
    )
    sizes = written(sink, kit, [rows] * 60)
    assert len(sizes) >= 2
    assert all(0.8 * MB <= size <= 1.3 * MB for size in sizes[:-1])


@pytest.mark.parametrize("make", [files, delta_table, iceberg_table])
def test_without_a_size_a_task_has_one_file(make: Callable[..., Any], tmp_path: Path) -> None:
    assert len(written(*make(tmp_path), batches(9))) == 1


@pytest.mark.parametrize("make", [files, delta_table, iceberg_table])
def test_an_aborted_task_leaves_no_file(make: Callable[..., Any], tmp_path: Path) -> None:
    sink, kit = make(tmp_path, target_file_size="2MB")
    sink.create_committer(kit.driver()).preflight()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    writer = sink.create_writer(kit.attempt())
    for batch in batches(5):
        writer.write(batch)
    writer.abort()
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


MAKE: dict[str, Callable[..., Any]] = {
    "FileSink": lambda **more: FileSink("/data/x", **more),
    "DeltaSink": lambda **more: DeltaSink("/data/x", **more),
    "IcebergSink": lambda **more: IcebergSink("shop.x", CATALOG, **more),
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("value", ["128 parsecs", 0, -1, "1kB", 1.5, True, ""])
def test_a_wrong_size_is_refused(kind: str, value: object) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"^{kind} .*: target_file_size: .* is not a size of at least 1048576 bytes; give",
    ):
        MAKE[kind](target_file_size=value)


@pytest.mark.parametrize("kind", ["DeltaSink", "IcebergSink"])
def test_changes_by_key_have_no_size(kind: str) -> None:
    more = {"mode": "upsert"} if kind == "IcebergSink" else {}
    with pytest.raises(ConfigurationError, match="leave target_file_size out"):
        MAKE[kind](target_file_size="64MB", keys=["id"], **more)


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("parquet", {"path": "/data/x"}),
        ("json", {"path": "/data/x"}),
        ("delta", {"path": "/data/x"}),
        ("iceberg", {"path": "shop.x", "catalog.type": "sql"}),
    ],
)
def test_it_is_an_option_of_a_format(format_: str, options: dict[str, str]) -> None:
    made: Any = sink_of(
        format_, {**options, "target_file_size": "128MB"}, (), Place("file:///c/etl")
    )
    assert made.target_file_size == 128 * MB


@pytest.mark.parametrize("kind", MAKE)
def test_it_is_an_option_of_the_data_source(kind: str) -> None:
    sink = MAKE[kind](target_file_size="128MB")
    assert sink_of_options(sink_options(sink)).target_file_size == 128 * MB  # type: ignore[attr-defined]
    options = {**sink_options(sink), "target_file_size": "64mb"}
    assert sink_of_options(options).target_file_size == 64 * MB  # type: ignore[attr-defined]
