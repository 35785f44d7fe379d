"""What a newcomer mistypes or lacks, as typed, where no driver has to start: one line that ends
with the remedy, and no traceback. Of jobs that run: tests/integration and tests/spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.newcomer.conftest import Newcomer

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
JOB = PAGE.split("```python\n")[1].split("```")[0]
UNWRITABLE = {"XDG_CACHE_HOME": "/dev/null"}
NO_JAVA = {"JAVA_HOME": "/nowhere"}
TYPED: list[tuple[str, dict[str, str], str]] = [
    ("seamark run ap.py", {}, "give the path of a Python program"),
    ("seamark run -D checkpoint.intervall=1s app.py", {}, "did you mean 'checkpoint.interval'?"),
    ("seamark run app.py", NO_JAVA, "or set JAVA_HOME to one"),
    ("python app.py", NO_JAVA, "or set JAVA_HOME to one"),
    ("seamark demo", NO_JAVA, "or set JAVA_HOME to one"),
    ("seamark dev kafka", NO_JAVA, "or set JAVA_HOME to one"),
    ("seamark dev kafka", UNWRITABLE, "or set XDG_CACHE_HOME to a directory that is"),
    ("seamark verify", UNWRITABLE, "or set XDG_CACHE_HOME to a directory that is"),
    ("seamark dev kafka --topic 'my clicks'", {}, "such as clicks:4, of at most 999"),
    ("seamark topic tail clicks --bootstrap-servers localhost:1", {}, "--port 9092` starts one"),
    ("seamark stop clicks", {}, "Another storage is given with --storage"),
    ("seamark init 'my shop'", {}, "beginning with a letter or digit"),
    ("seamark init .", {}, "name another directory, or remove it"),
    ("seamark demo --directory .", {}, "name another directory, or remove it"),
    ("seamark explain blank.py", {}, "beginning with a letter or digit"),
    ("python blank.py", {}, "beginning with a letter or digit"),
    ("python interval.py", {}, 'such as "500ms", "5s", "10min", "1h"'),
]


@pytest.mark.parametrize(("command", "variables", "remedy"), TYPED)
def test_the_last_line_has_the_remedy(
    newcomer: Newcomer, command: str, variables: dict[str, str], remedy: str
) -> None:
    for name, old, new in (
        ("app.py", "", ""),
        ("blank.py", '"clicks", sm', '"my clicks", sm'),
        ("interval.py", '"2s"', '"2 parsecs"'),
    ):
        (newcomer.directory / name).write_text(JOB.replace(old, new))
    newcomer.environment.update(variables)
    done = newcomer.run("bash", "-c", command, timeout=120)
    assert done.returncode in (1, 2, 4)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("seamark: ") or re.match(r"\w+Error: ", last), done.stderr
    assert last.endswith(remedy), done.stderr
    assert "Traceback" not in done.stderr
    # Of the program's own lines the one that is to be mended, none of Seamark's.
    assert len(re.findall(r'File "', done.stderr)) <= 1, done.stderr
