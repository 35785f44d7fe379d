"""The jar cache and the search for Java, on real directories and without the network.

JAVA_HOME points to an empty directory wherever nothing may be fetched: a `resolve` in need of
fetching then fails for want of Java. Fetching itself: `tests/integration/test_jar_fetch.py`.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
from pathlib import Path

import pytest

from seamark.model.errors import MissingDependencyError
from seamark.spark import jars
from seamark.spark.jars import Request, find_java, resolve, spark_version

REQUEST = Request(("org.example:thing:1.0",))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no Java to fill it with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    return tmp_path / "cache" / "seamark" / "jars"


def fill(directory: Path, remark: str = "") -> Path:
    """Put a complete set of one jar into `directory`, as a fetch leaves it."""
    directory.mkdir(parents=True)
    jar = directory / "thing-1.0.jar"
    jar.write_bytes(b"twelve bytes")
    record = {"artifacts": REQUEST.artifacts, "remark": remark, "jars": {jar.name: 12}}
    (directory / "complete.json").write_text(json.dumps(record))
    return jar


def test_a_complete_set_is_used_as_it_is(cache: Path) -> None:
    jar = fill(cache / "thing")
    assert resolve("thing", REQUEST) == [jar]


def test_a_stand_in_is_said_in_the_log_each_time(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cache / "thing", remark="1.0 stands in for 2.0")
    with caplog.at_level(logging.WARNING):
        resolve("thing", REQUEST)
        resolve("thing", REQUEST)
    assert caplog.messages == ["thing: 1.0 stands in for 2.0"] * 2


@pytest.mark.parametrize("damage", ["no marker", "torn marker", "jar gone", "jar shorter"])
def test_an_incomplete_set_is_never_used(cache: Path, damage: str) -> None:
    jar = fill(cache / "thing")
    marker = cache / "thing" / "complete.json"
    if damage == "no marker":
        marker.unlink()
    elif damage == "torn marker":
        marker.write_text(marker.read_text()[:-10])
    elif damage == "jar gone":
        jar.unlink()
    else:
        jar.write_bytes(b"eleven byte")
    with pytest.raises(MissingDependencyError, match="no java in JAVA_HOME"):
        resolve("thing", REQUEST)


def test_what_a_killed_fetch_left_is_not_used(cache: Path) -> None:
    fill(cache / "thing.partial-x1y2")
    with pytest.raises(MissingDependencyError, match="no java in JAVA_HOME"):
        resolve("thing", REQUEST)


def java_that_says(directory: Path, line: str) -> Path:
    """Make a program to answer `-version` (on stderr) like JVMs not installed here."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    "line", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS']
)
def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    program = java_that_says(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == program


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('java version "1.8.0_392"', "is Java 8, too old; install a Java 17"),
        ('openjdk version "11.0.21" 2023-10-17', "is Java 11, too old; install a Java 17"),
        ("The operation could not be completed", "names no version"),
    ],
)
def test_a_java_that_will_not_do_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    java_that_says(tmp_path, line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=message) as raised:
        find_java()
    assert "\n" not in str(raised.value)


def test_no_java_at_all_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=r"^no java on PATH.*install a Java 17[^\n]*$"):
        find_java()


def test_the_version_is_that_of_the_installed_pyspark() -> None:
    assert spark_version() == importlib.metadata.version("pyspark")


def test_pyspark_is_looked_at_but_not_imported() -> None:
    import subprocess

    program = (
        "import sys; sys.modules['seamark'] = type(sys)('seamark');"
        f"sys.modules['seamark'].__path__ = [{str(Path(jars.__file__).parents[1])!r}];"
        "from seamark.spark.jars import spark_version; spark_version();"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("4.0.5", "4.0.2"), ("4.1.4", "4.1.1"), ("4.2.1", "4.2.0"), ("4.3.0", "4.2.0"),
        ("3.5.8", "4.0.2"), ("4.2.0.dev0", "4.2.0"),
    ],
)  # fmt: skip
def test_a_stand_in_is_of_the_same_release_line(version: str, nearest: str) -> None:
    """Classes move between lines: a connector of another one is not even loaded."""
    assert jars._nearest(version, jars._CONNECTORS) == nearest
