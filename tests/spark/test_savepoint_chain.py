"""A job that is stopped with a savepoint and restored nine times, onto other partitions and
backends, and killed before its first checkpoint on the way, against one that is never stopped.

How: drivers are processes of their own; each goes through one more file. In the end everything that
all of them have put into their sinks is compared, row by row, with what one driver has put there
that reads all files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.driver import Driver
from tests.spark.stateful_programs import write_input

CHAIN = (1, 2, 3, 5, 6, 5, 2, 3, 2, 1)
KILLED = {2: "restored", 4: "epoch-started", 6: "pre-committed", 8: "prepared"}
"""Before the first checkpoint of that step is complete: the restore is whole, but its mark is still
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


def compare(
    home: Path,
    chain: Sequence[int],
    killed: Mapping[int, str],
    kinds: Sequence[str],
    backends: Sequence[Mapping[str, Any]],
) -> None:
    """Run a driver for each number of partitions in `chain`, each from the savepoint of the one
    before, and those in `killed` twice; compare what they write with what one driver writes."""
    names = [f"step-{step}" for step in range(len(chain))]
    restored = ""
    for step, (name, partitions) in enumerate(zip(names, chain, strict=True)):
        write_input(home / "in", step, overlap=True)
        if step == len(chain) - 1:
            write_input(home / "in", CLOSING)
        environment = {"TIDEMARK_PARALLELISM": str(partitions)}
        if step:
            environment["TIDEMARK_RESTORE"] = restored
        asked = {
            "kinds": kinds,
            "config": backends[step % len(backends)],
            "files": 1 + (step == len(chain) - 1),
            "savepoint": step < len(chain) - 1,
            "environment": environment,
        }
        if step in killed:
            run(home, name, killed[step], **asked)
        run(home, name, **asked)
        if asked["savepoint"]:
            restored = (home / f"{name}.path").read_text()
    files = len(chain) + 1
    run(home, "still", kinds=kinds, config=backends[0], files=files, savepoint=False)
    for kind in kinds:
        expected = rows_of(home, ["still"], kind)
        assert expected, f"{kind}: nothing to compare"
        assert rows_of(home, names, kind) == expected, kind


@pytest.mark.timeout(600)
def test_a_restored_job_that_dies_in_its_first_epoch_goes_on(tmp_path: Path) -> None:
    """At its first start Spark deletes what is older than its first commit of the metadata of a
    transformWithState."""
    compare(tmp_path, (1, 2), {1: "prepared"}, ["transform_with_ttl"], [ROCKSDB])


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
    compare(tmp_path, CHAIN, KILLED, kinds, backends)
