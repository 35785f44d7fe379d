"""FileSink under the conformance suite, in each format: a real directory, read by pyarrow."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest

from tidemark.sinks.files import FileSink
from tidemark.verify.conformance import ExpiryConformance, SinkConformance, SinkUnderTest


@pytest.fixture(params=["parquet", "json", "csv"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> SinkUnderTest:
    form = request.param
    sink = FileSink(tmp_path / "target", format=form)

    def batch(numbers: list[int]) -> pa.RecordBatch:
        if form == "json":
            lines = [json.dumps({"id": n, "text": f"row {n}"}) for n in numbers]
            return pa.record_batch([pa.array(lines, pa.string())], names=["value"])
        return pa.record_batch(
            [pa.array(numbers, pa.int64()), pa.array([f"row {n}" for n in numbers], pa.string())],
            names=["id", "text"],
        )

    def visible() -> list[int]:
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        rows = pa.dataset.dataset(sink.path, format=form, schema=schema).to_table()
        assert rows["text"].to_pylist() == [f"row {n}" for n in rows["id"].to_pylist()]
        return rows["id"].to_pylist()

    return SinkUnderTest(
        sink=sink,
        batch=batch,
        visible=visible,
        writer_failpoint="pending-written",
        commit_failpoints=("file-renamed", "file-renamed:2", "file-renamed:3"),
        drop=lambda file: (tmp_path / "target/_tidemark/pending" / file.handle).unlink(),
    )


class TestFiles(SinkConformance, ExpiryConformance):
    pass
