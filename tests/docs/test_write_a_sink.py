"""docs/write-a-sink.md, run as it stands: its sink against a real service, under the whole suite.

The page's Python blocks are taken out of it: the fifth is the reader's test file, which runs here,
the others are the module `hold_sink`. The service is a process of its own in each test.
"""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.verify.conformance import DeadLetterConformance, SinkUnderTest

PAGE = Path(__file__).parents[2] / "docs" / "write-a-sink.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SINK, TEST, DEAD_LETTERS = BLOCKS[:4], BLOCKS[4], BLOCKS[5]

# Importable here and, by sys.path, in the suite's child processes.
directory = tempfile.TemporaryDirectory(prefix="sm-")
Path(directory.name, "hold_sink.py").write_text("\n\n".join([*SINK, DEAD_LETTERS]))
sys.path.append(directory.name)


class Service:
    """The order service, on the same port and database after each restart."""

    def __init__(self, directory: Path) -> None:
        self._database = directory / "orders.db"
        self.port = 0
        self.restart()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        program = Path(__file__).with_name("hold_service.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(self.port), str(self._database)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    yield running
    running.kill()


def test_the_sink_is_as_short_as_the_page_says() -> None:
    lines = [line for block in SINK for line in block.splitlines()]
    code = [line for line in lines if line.strip() and not re.match("import |from ", line)]
    assert len(code) < 60


exec(compile(TEST, str(PAGE), "exec"))  # defines `under` and `TestHoldSink`


class TestSelectiveHoldSink(DeadLetterConformance):
    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        from hold_sink import SelectiveHoldSink

        sink = SelectiveHoldSink(under.sink.url)
        return dataclasses.replace(under, sink=sink, refused=lambda: under.batch([-1, -2]))
