"""One example of `examples/`, in a directory of its own: a test types its README's lines.

A line that the README does not have is refused, so a README and its test cannot drift apart.
Addresses go in as the variables that the example reads. Servers are the tests' own: the README's
line that starts one is not typed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

from tests.chaos.driver import REPOSITORY, wait_until
from tests.newcomer.conftest import Newcomer

EXAMPLES = REPOSITORY / "examples"
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = 240


def typed_lines(readme: str) -> list[str]:
    """Return the lines of a README's blocks, without comments and the `&` at their ends."""
    lines = [line for block in _BLOCK.findall(readme) for line in block.splitlines()]
    return [re.sub(r"\s+#\s.*|\s+&\s*(#.*)?$", "", line).strip() for line in lines]


class Example(Newcomer):
    """A shell in a copy of the example's directory."""

    def __init__(self, name: str, tmp_path: Path, **variables: str) -> None:
        directory = tmp_path / name
        shutil.copytree(EXAMPLES / name, directory)
        found = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {
            **os.environ,
            "PATH": found,
            "PYTHONPATH": str(REPOSITORY / "src"),
            "SEAMARK_HOME": str(tmp_path / "home"),
            "COLUMNS": "200",
        }
        super().__init__(directory, {**environment, **variables})
        self.readme = (directory / "README.md").read_text()
        self._lines = typed_lines(self.readme)

    def type(self, line: str, code: int = 0, more: str = "") -> str:
        """Run a line of the README, which must end with `code`; return its standard output.

        more: arguments that the test adds.
        """
        done = self.run("bash", "-c", f"{self._known(line)} {more}")
        assert done.returncode == code, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        (self.directory / "stderr.log").write_text(done.stderr)
        return done.stdout

    def die(self, line: str) -> str:
        """Run a line of the README whose driver dies at its failpoint; return its output."""
        output = self.type(line, code=-signal.SIGKILL)
        assert "Seamark dies at failpoint" in self.said("stderr.log")
        return output

    def known(self, line: str, more: str = "") -> str:
        """Return a line of the README, for `running`."""
        return f"{self._known(line)} {more}"

    def until(self, what: str, log: str) -> None:
        """Wait until a log of `running` has this text."""
        wait_until(what, lambda: what in self.said(log), _SECONDS)

    def _known(self, line: str) -> str:
        assert line in self._lines, f"not in the README: {line}; it has {self._lines}"
        return line
