"""Fetching jars for real, with small ones: from Maven, by Ivy, into an empty cache.

Each fetch runs in a process of its own where it is to be killed or to meet another.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seamark.model.errors import MissingDependencyError
from seamark.spark.jars import Request, resolve

SLF4J = "org.slf4j:slf4j-api:1.7.36"
FETCH = (
    "import logging; logging.basicConfig(level=logging.INFO, format='%(message)s')\n"
    "from seamark.spark.jars import Request, resolve\n"
    f"print(*resolve('slf4j', Request(({SLF4J!r},))))\n"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "seamark" / "jars"


def start_fetch() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_fetch_once(cache: Path) -> None:
    both = [start_fetch(), start_fetch()]
    answers = [process.communicate(timeout=300) for process in both]
    jar = cache / "slf4j" / "slf4j-api-1.7.36.jar"
    assert [out.strip() for out, _ in answers] == [str(jar)] * 2
    assert sum("fetching" in log for _, log in answers) == 1
    assert sorted(p.name for p in cache.iterdir()) == ["slf4j", "slf4j.lock"]


def test_a_killed_fetch_is_taken_up_again(cache: Path) -> None:
    with start_fetch() as killed:
        deadline = time.monotonic() + 60
        while not list(cache.glob("slf4j.partial-*/ivy/ivy.xml")):
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    assert not (cache / "slf4j").exists()
    (jar,) = resolve("slf4j", Request((SLF4J,)))
    assert jar.stat().st_size > 40_000
    assert not list(cache.glob("slf4j.partial-*"))


def test_a_fallback_is_found_once_and_then_remembered(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    missing = Request(("org.slf4j:slf4j-api:0.0.0-none",))
    fallback = Request((SLF4J,), transitive=False, remark="1.7.36 stands in")
    (jar,) = resolve("slf4j", missing, fallback)
    assert jar.name == "slf4j-api-1.7.36.jar"
    assert "fetching" in caplog.text
    caplog.clear()
    assert resolve("slf4j", missing, fallback) == [jar]
    assert "fetching" not in caplog.text


def test_what_is_not_to_be_had_is_named(cache: Path) -> None:
    with pytest.raises(MissingDependencyError, match=r"slf4j-api;0\.0\.0-none: not found"):
        resolve("slf4j", Request(("org.slf4j:slf4j-api:0.0.0-none",)))
    assert [p.name for p in cache.iterdir()] == ["slf4j.lock"]
