"""The sinks that need no server, with odd values and odd names.

Read by others' readers: Python's SQLite, DuckDB's CSV, pyarrow's Parquet, delta-rs and pyiceberg.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from seamark.contracts.sink import SinkContext
from seamark.model.errors import WriteRefusedError
from seamark.model.schema import Column, Schema
from seamark.sinks.delta import DeltaSink
from seamark.sinks.files import FileSink
from seamark.sinks.iceberg import IcebergSink
from seamark.sinks.sqlite import SQLiteSink
from seamark.verify.conformance import ValuesConformance, ValuesUnderTest
from seamark.verify.conformance.steps import JOB, UID, attempt, until_proved
from tests.integration.iceberg.sink_kit import catalog_at


def plain(values: pa.ChunkedArray) -> list[Any]:
    """Return Python's values, times as numbers, of bytes that are no text U+FFFD."""
    if pa.types.is_string(values.type):
        texts = values.cast(pa.binary()).to_pylist()
        return [None if text is None else text.decode(errors="replace") for text in texts]
    if pa.types.is_temporal(values.type):
        whole = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        values = values.cast(whole)
    return values.to_pylist()


@pytest.mark.parametrize("settings", [{}, {"keys": ["n"]}], ids=["append", "upsert"])
class TestSQLite(ValuesConformance):
    @pytest.fixture
    def odd(self, tmp_path: Path, settings: dict[str, Any]) -> ValuesUnderTest:
        def read(schema: Schema) -> Mapping[int, Any]:
            connection = sqlite3.connect(tmp_path / "a.db")
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            with connection:
                found = dict(connection.execute("SELECT * FROM t").fetchall())
            connection.close()
            return found

        return ValuesUnderTest(
            lambda schema: SQLiteSink(tmp_path / "a.db", "t", **settings), read, sql_floats=True
        )


class TestParquet(ValuesConformance):
    @pytest.fixture
    def odd(self, tmp_path: Path) -> ValuesUnderTest:
        def read(schema: Schema) -> Mapping[int, Any]:
            found: dict[int, Any] = {}
            for path in (tmp_path / "t").glob("*.parquet"):
                table = pq.ParquetFile(path).read()
                found.update(zip(table["n"].to_pylist(), plain(table.column(1)), strict=True))
            return found

        return ValuesUnderTest(lambda schema: FileSink(tmp_path / "t"), read)


class TestCsv(ValuesConformance):
    @pytest.fixture
    def odd(self, tmp_path: Path) -> ValuesUnderTest:
        def read(schema: Schema) -> Mapping[int, Any]:
            found: dict[int, Any] = {}
            for path in (tmp_path / "t").glob("*.csv"):
                found.update(records(path.read_bytes().decode(errors="replace")))
            return found

        return ValuesUnderTest(lambda schema: FileSink(tmp_path / "t", "csv"), read)


def records(text: str) -> dict[int, Any]:
    """Read a file of two columns by RFC 4180; nothing is null, quoted nothing is a text."""
    found = re.findall(r'(?:("(?:[^"]+|"")*")|([^",\n]*))[,\n]', text)
    fields = [q[1:-1].replace('""', '"') if q else plain_text or None for q, plain_text in found]
    assert len(fields) % 2 == 0
    return {int(n): v for n, v in zip(fields[2::2], fields[3::2], strict=True)}


@pytest.mark.parametrize("settings", [{}, {"keys": ["n"]}], ids=["append", "merge"])
class TestDelta(ValuesConformance):
    @pytest.fixture
    def odd(self, tmp_path: Path, settings: dict[str, Any]) -> ValuesUnderTest:
        def read(schema: Schema) -> Mapping[int, Any]:
            files = DeltaTable(str(tmp_path / "t")).file_uris()
            table = pa.concat_tables(pq.ParquetFile(path).read() for path in files)
            return dict(zip(table["n"].to_pylist(), plain(table.column(1)), strict=True))

        return ValuesUnderTest(
            lambda schema: DeltaSink(str(tmp_path / "t"), create_table=True, **settings), read
        )


class TestIceberg(ValuesConformance):
    @pytest.fixture
    def odd(self, tmp_path: Path) -> ValuesUnderTest:
        catalog = catalog_at(tmp_path)

        def read(schema: Schema) -> Mapping[int, Any]:
            tasks = load_catalog("default", **catalog).load_table("shop.t").scan().plan_files()
            paths = [task.file.file_path.removeprefix("file://") for task in tasks]
            table = pa.concat_tables(pq.ParquetFile(path).read() for path in paths)
            return dict(zip(table["n"].to_pylist(), plain(table.column(1)), strict=True))

        return ValuesUnderTest(lambda _: IcebergSink("shop.t", catalog, create_table=True), read)


def test_a_text_that_is_not_utf8_names_no_directory_and_is_no_key_in_delta(tmp_path: Path) -> None:
    """delta-rs would end the driver's process at it, in the commit."""
    texts = pa.array([b"a", b"a\xffb"], pa.binary()).view(pa.string())
    rows = pa.record_batch(
        [texts, pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), texts)], names=["v", "w"]
    )
    with pytest.raises(WriteRefusedError, match="'v': a text that is not UTF-8"):
        FileSink(tmp_path / "t", partition_by=["v"]).create_writer(attempt()).write(rows)
    schema = (Column("v", "string"), Column("w", "array<string>"))
    for number, settings in enumerate(({"partition_by": ["v"]}, {"keys": ["v"]})):
        sink = DeltaSink(str(tmp_path / f"d{number}"), create_table=True, **settings)  # type: ignore[arg-type]
        committer = sink.create_committer(SinkContext(JOB, "orders", UID, 1, 5.0, schema))
        committer.preflight()
        writer = sink.create_selective_writer(attempt())
        plain = rows.set_column(1, "w", pa.array([["a"], None]))
        assert [row.index for row in writer.write_accepted(plain)] == [1]
        nested = rows.set_column(0, "v", pa.array(["a", "b"]))
        assert len(writer.write_accepted(nested)) == (1 if "keys" in settings else 0)
        assert until_proved(committer.commit, list(writer.prepare_commit()))
        committer.close()
