"""The sink under the suite that every sink of Seamark's runs under."""

from pathlib import Path

import pyarrow as pa
import pytest
from notes_sink import NoteSink

from seamark.verify.conformance import SinkConformance, SinkUnderTest


@pytest.fixture
def under(tmp_path: Path) -> SinkUnderTest:
    def visible() -> list[int]:
        files = sorted((tmp_path / "shown").glob("*"))
        return [int(line) for file in files for line in file.read_text().splitlines()]

    return SinkUnderTest(
        sink=NoteSink(str(tmp_path)),
        batch=lambda numbers: pa.record_batch({"text": pa.array(map(str, numbers), pa.string())}),
        visible=visible,
    )


class TestNoteSink(SinkConformance):
    pass
