"""The examples that need no server but their own: each is killed with -9 as its README says, and
counted."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark.dev.java_server import free_ports
from seamark.spark.spark_versions import HAS_READ_LIMITS
from tests.chaos.driver import wait_until
from tests.examples.example import Example

pytestmark = pytest.mark.skipif(not HAS_READ_LIMITS, reason="their sources need Spark 4.2")
Make = Callable[..., Example]


def test_three_guarantees(example: Make) -> None:
    here = example("three-guarantees")
    found = dict(re.findall(r"^(\S+) +(\d+ +\d+)$", here.type("python compare.py"), re.MULTILINE))
    sums = {mode: tuple(map(int, text.split())) for mode, text in found.items()}
    assert sums == {
        "exactly-once": (600, 600),
        "at-least-once": (800, 600),
        "at-most-once": (600, 400),
    }
    for mode, (debit, credit) in sums.items():
        assert f"| `{mode}` | {debit} | {credit} |" in here.readme


def test_files_step_by_step(example: Make) -> None:
    here = example("files-step-by-step")
    listing = "find out -type f | sort"

    def seen() -> tuple[int, int]:
        """Return how many files a reader sees, and how many are pending."""
        files = here.type(listing).split()
        (layout,) = (file for file in files if file.startswith("out/_seamark/layout/"))
        files.remove(layout)
        pending = [file for file in files if file.startswith("out/_seamark/pending/")]
        assert all(file.endswith(".pending") for file in pending)
        return len(files) - len(pending), len(pending)

    here.die("SEAMARK_FAILPOINT=pre-committed:2 python app.py")
    assert seen() == (2, 2)
    here.die("SEAMARK_FAILPOINT=file-renamed python app.py")
    assert seen() == (3, 1)
    here.type("python app.py")
    assert seen() == (6, 0)
    assert here.type("cat out/*.json | wc -l").strip() == "60"


def test_malformed_input(example: Make) -> None:
    here = example("malformed-input")
    here.die("SEAMARK_FAILPOINT=sink-committed:1 python app.py")
    here.type("python app.py")
    assert here.type("cat orders/*.json | wc -l").strip() == "3"
    assert here.type("cat refused/*.json | wc -l").strip() == "7"
    refused = map(json.loads, here.type("cat refused/*.json").splitlines())
    found = {line["value"][:11]: line["reason"].partition(" than")[0] for line in refused}
    assert found == {
        '{"id": 3, "': "not one JSON value",
        '{"id": "fou': "an object with other types",
        "": "not one JSON value",
        '{"id": 6, "': "not one JSON value",
        '{"price": 3': "no id",
        '{"id": 8, "': "not one JSON value",
        "[1, 2]": "an object with other types",
    }


def test_write_ahead_http(example: Make) -> None:
    """The endpoint is killed as well, behind the first kill of the job."""
    (port,) = free_ports(1)
    here = example("write-ahead-http", ENDPOINT=f"http://127.0.0.1:{port}")
    endpoint = here.known("python endpoint.py", str(port))
    with here.running(endpoint, "endpoint-1.log"):
        here.until("listening", "endpoint-1.log")
        here.die("SEAMARK_FAILPOINT=rows-sent:3 python app.py")
    with here.running(endpoint, "endpoint-2.log"):
        here.until("listening", "endpoint-2.log")
        here.die("SEAMARK_FAILPOINT=rows-sent:2 python app.py")
        here.type("python app.py")
        shown = here.run("curl", "-s", f"localhost:{port}").stdout.strip()
    assert shown == '{"/keeps-tokens": 60, "/forgets-tokens": 80}'
    assert shown in here.readme


def test_socket_word_count(example: Make) -> None:
    (port,) = free_ports(1)
    here = example("socket-word-count", SOCKET=f"localhost:{port}")

    def counts() -> dict[str, int]:
        """Return the newest count of each word."""
        rows = re.findall(r"^\| +(\w+)\| +(\d+)\|$", here.said("counts.log"), re.MULTILINE)
        return {word: int(count) for word, count in rows}

    def sent() -> list[int]:
        """Return the lines sent when each client had gone."""
        return [int(n) for n in re.findall(r"gone after (\d+) lines", here.said("words.log"))]

    (here.directory / "seamark.toml").write_text('[checkpoint]\ninterval = "1s"\n')  # not 5
    output = here.directory / "counts.log"
    with here.running(here.known("python words.py", f"1000000 {port}"), "words.log"):
        output.write_text(here.die("SEAMARK_FAILPOINT=pre-committed:4 python app.py"))
        before = counts()
        with here.running(here.known("python app.py"), "counts.log") as app:
            here.wait(lambda: counts() != before, "counts.log", app)
            app.send_signal(signal.SIGINT)
            app.wait(60)
        wait_until("the server notices", lambda: len(sent()) >= 2, 60)
    (lost,) = re.findall(r"The (\d+) lines that it had read of source lines are lost",
                         here.said("counts.log"))  # fmt: skip
    found = counts()
    assert found["to"] == found["be"] == 2 * found["or"] == 2 * found["not"]
    assert found["or"] > before["or"], "the counts do not go on"
    assert 0 < int(lost) <= sent()[-1] - found["or"]


def test_own_sink(example: Make, tmp_path: Path) -> None:
    here = example("own-sink")
    here.die("SEAMARK_FAILPOINT=sink-committed:2 python app.py")
    here.type("python app.py")
    assert here.type("cat notes/shown/* | wc -l").strip() == "60"
    assert "failed" not in here.type("pytest -q test_sink.py")


def test_savepoint_session(example: Make) -> None:
    here = example("savepoint-session")
    shown = re.findall(r"^counted (\d+) of (\d+)$", here.type("bash session.sh"), re.MULTILINE)
    assert len(shown) == 3
    counted = [int(number) for number, _ in shown]
    assert counted == [int(number) for _, number in shown], "lost or doubled"
    assert 0 < counted[0] < counted[1] < counted[2]
