"""`seamark doctor`, as typed: what is there, and each thing that can be missing, made missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seamark.dev.kafka import LocalKafka

SEAMARK = Path(sys.executable).with_name("seamark")


def doctor(
    directory: Path, *arguments: object, **environment: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    done = subprocess.run(
        [SEAMARK, "doctor", "--json", *map(str, arguments)],
        cwd=directory, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)}


def missing(checks: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, check in checks.items() if check["missing"]]


def test_all_is_there_and_nothing_stays_behind(kafka: LocalKafka, tmp_path: Path) -> None:
    storage = tmp_path / "made" / "by the trial"
    code, checks = doctor(
        tmp_path, "--storage", storage, "--bootstrap-servers", kafka.bootstrap_servers
    )
    assert (code, missing(checks)) == (0, [])
    assert checks["brokers"]["found"].startswith("1 at 127.0.0.1:")
    assert "spark-sql-kafka" in checks["Kafka connector"]["found"]
    assert not list(tmp_path.iterdir())


def test_the_storage_of_the_settings_is_tried(tmp_path: Path) -> None:
    (tmp_path / "seamark.toml").write_text('checkpoint.storage = "/proc/nowhere"\n')
    code, checks = doctor(tmp_path)
    assert (code, missing(checks)) == (1, ["storage"])
    assert "/proc/nowhere" in checks["storage"]["found"]
    assert checks["storage"]["remedy"]


@pytest.mark.parametrize(
    ("arguments", "environment", "name", "said"),
    [
        ((), {"JAVA_HOME": "/nowhere"}, "Java", "no java in JAVA_HOME=/nowhere"),
        (("--bootstrap-servers", "127.0.0.1:1"), {}, "brokers", "127.0.0.1:1 does not answer"),
        (("--storage", "/dev/null/in"), {}, "storage", "cannot be made"),
        (("--storage", "/tmp/" + 300 * "x"), {}, "storage", "File name too long"),
        ((), {"XDG_CACHE_HOME": "/dev/null"}, "Kafka connector", "cannot be kept in /dev/null"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_remedy(
    arguments: tuple[str, ...], environment: dict[str, str], name: str, said: str, tmp_path: Path
) -> None:
    code, checks = doctor(tmp_path, *arguments, **environment)
    assert code == 1
    assert name in missing(checks)
    assert said in checks[name]["found"]
    assert checks[name]["remedy"]


def test_a_mistake_in_the_address_of_the_storage_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [SEAMARK, "doctor", "--storage", "wasb://c@a/x"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("seamark: --storage")
