"""`seamark class-archive`: Spark's JVM maps the archives, whoever starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.spark import class_archive

pytestmark = pytest.mark.full

MAPPED = """
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
print("MAPPED", "spark.jsa" in open(f"/proc/{pid}/maps").read())
"""
OWN_SESSION = """
import seamark
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""
SEAMARKS = """
from seamark.spark.session import spark_session
spark = spark_session("app")
"""


def test_a_driver_maps_the_archives(tmp_path: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_TOOL_OPTIONS", class_archive.LAUNCHER_VARIABLE)
    } | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    seamark = str(Path(sys.executable).with_name("seamark"))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    def is_mapped(program: str, *command: str) -> bool:
        (tmp_path / "app.py").write_text(program + MAPPED)
        done = run(*command, "app.py")
        assert "MAPPED" in done.stdout, done.stderr
        return "MAPPED True" in done.stdout

    assert not is_mapped(SEAMARKS, sys.executable)
    made = run(seamark, "class-archive")
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("export ") == 2, made.stdout
    assert is_mapped(SEAMARKS, sys.executable)
    assert is_mapped(OWN_SESSION, seamark, "run")
    assert not is_mapped(OWN_SESSION, sys.executable)
    environment |= dict(
        line.removeprefix("export ").replace("'", "").split("=", 1)
        for line in made.stdout.splitlines()
    )
    assert is_mapped(OWN_SESSION, sys.executable)


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    done = subprocess.run(
        [Path(sys.executable).with_name("seamark"), "class-archive"],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot be kept in" in done.stderr
    assert "XDG_CACHE_HOME" in done.stderr
    assert "Traceback" not in done.stderr
