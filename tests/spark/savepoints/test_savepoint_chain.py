"""A job, stopped with a savepoint and restored nine times, onto other partitions and backends, and
killed before its first checkpoint on the way, against a job never stopped.

How: drivers are processes of their own; each goes through one more file. In the end the rows of all
their sinks are compared, one by one, with those of a single driver over all files.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.driver import Driver
from tests.spark.savepoints.stateful_programs import write_input

CHAIN = (1, 2, 3, 5, 6, 5, 2, 3, 2, 1)
KILLED = {2: "restored", 4: "epoch-started", 6: "pre-committed", 8: "prepared"}
"""Before this step's first checkpoint is complete: the restore is whole, but its mark is still
there; an epoch is planned; its rows are written; its record is stored, but it is not decided."""
CLOSING = 1000
"""The number of a last file, hours later: it closes all windows."""

BOTH = ("aggregation", "distinct", "session_windows", "join")
HASHMAP = {"state_backend": "hashmap"}
ROCKSDB = {"state_backend": "rocksdb"}
CHANGELOG = {"state_backend": "rocksdb", "changelog": True}


def rows_of(home: Path, names: list[str], kind: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in names:
        for path in (home / "out" / name / kind).glob("*.json"):
            found.update(path.read_text().splitlines())
    return found


def run(home: Path, name: str, failpoint: str | None = None, **asked: Any) -> None:
    environment = asked.pop("environment", None)
    log = home / f"{name}-{failpoint}.log"
    program = Path(__file__).with_name("chain_app.py")
    driver = Driver(program, {"name": name, **asked}, log, failpoint, environment)
    try:
        if failpoint:
            driver.die(600)
        else:
            assert driver.wait(600) == 0, driver.tail()
    finally:
        driver.kill_tree()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kinds", "backends"),
    [
        pytest.param(BOTH, [HASHMAP], id="hashmap"),
        pytest.param((*BOTH, "transform_with_ttl"), [ROCKSDB], id="rocksdb"),
        pytest.param(BOTH, [HASHMAP, ROCKSDB, HASHMAP, CHANGELOG, ROCKSDB], id="in-turns"),
    ],
)
def test_ten_drivers_write_what_one_writes(
    tmp_path: Path, kinds: tuple[str, ...], backends: list[dict[str, Any]]
) -> None:
    names = [f"step-{step}" for step in range(len(CHAIN))]
    restored = ""
    for step, (name, partitions) in enumerate(zip(names, CHAIN, strict=True)):
        write_input(tmp_path / "in", step, overlap=True)
        if step == len(CHAIN) - 1:
            write_input(tmp_path / "in", CLOSING)
        environment = {"SEAMARK_PARALLELISM": str(partitions)}
        if step:
            environment["SEAMARK_RESTORE"] = restored
        asked = {
            "kinds": kinds,
            "config": backends[step % len(backends)],
            "files": 1 + (step == len(CHAIN) - 1),
            "savepoint": step < len(CHAIN) - 1,
            "environment": environment,
        }
        if step in KILLED:
            run(tmp_path, name, KILLED[step], **asked)
        run(tmp_path, name, **asked)
        if asked["savepoint"]:
            restored = (tmp_path / f"{name}.path").read_text()
    files = len(CHAIN) + 1
    run(tmp_path, "still", kinds=kinds, config=backends[0], files=files, savepoint=False)
    for kind in kinds:
        expected = rows_of(tmp_path, ["still"], kind)
        assert expected, f"{kind}: nothing to compare"
        assert rows_of(tmp_path, names, kind) == expected, kind
