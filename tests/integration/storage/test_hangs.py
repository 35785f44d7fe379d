"""A hanging storage: its server is stopped by SIGSTOP, so it accepts connections and answers
nothing, at the start of a job and in the middle of its run; SIGCONT brings it back.

A start must end with a clear error. A running job's epoch must fail by a deadline, and count as a
failed checkpoint; the same driver must go on when the storage answers; no row may be lost or
doubled.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.driver import wait_until
from tests.chaos.scenario import EmbeddedScenario
from tests.storage_servers import spark_configuration

TIMEOUT = {"hdfs": "15s", "s3": "45s"}
"""An epoch on S3 makes many requests more, and each is slow on a busy machine."""
DEADLINE = re.compile(r"ERROR seamark\.checkpoint\.coordinator: job \w+ stops: .*")
FAILURE = re.compile(r"checkpoint failure \d+ of 100 that are tolerated: epoch \d+, (\w+): .*")


def hang_and_come_back(
    scenario: EmbeddedScenario, timeout: str, send: Callable[[signal.Signals], None]
) -> None:
    settings = {"timeout": timeout, "tolerable_failed_checkpoints": 100}
    starting, gate = scenario.held()
    driver, next_gate = scenario.held(settings=settings)
    wait_until("Spark is up", lambda: any("java" in p.name() for p in driver.tree()), 120)
    send(signal.SIGSTOP)
    try:
        gate.touch()
        assert starting.wait(150) == 1
    finally:
        send(signal.SIGCONT)
    # Spark's shutdown may have a line after it.
    ends = re.findall(
        r"(?:RecordNotStored|StorageHangs)Error: checkpoint storage .*(?:read|listed|hangs).*",
        starting.text(),
    )
    assert ends, starting.tail()
    print(*ends, sep="\n")
    assert "Nothing is lost; check" in ends[-1]

    next_gate.touch()
    driver.wait_for_epochs(2, 240)
    so_far = len(driver.text())  # on a busy machine the first epoch may have been too slow
    send(signal.SIGSTOP)
    try:
        expired: Any = wait_until("a deadline", lambda: DEADLINE.search(driver.text(), so_far), 120)
    finally:
        send(signal.SIGCONT)
    print(expired[0])
    # It is counted when Spark's query has ended, which on S3 tries for minutes what it was at.
    found: Any = wait_until("a failure", lambda: FAILURE.search(driver.text(), so_far), 150)
    print(found[0])
    assert found[1] in ("EXPIRED", "STORAGE")
    before = len(driver.epochs())
    wait_until("it goes on", lambda: len(driver.epochs()) >= before + 2, 180)
    scenario.finish(driver)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["hdfs", pytest.param("s3", marks=pytest.mark.chaos)])
def test_a_server_that_does_not_answer(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(store)
    base = f"s3a://{server.bucket}" if store == "s3" else server.uri
    with EmbeddedScenario(tmp_path, storage=f"{base}/{tmp_path.name}") as scenario:
        if store == "s3":
            scenario.environment = spark_configuration(tmp_path / "conf", server)
            hang_and_come_back(scenario, TIMEOUT[store], server.send)
        else:
            hang_and_come_back(
                scenario, TIMEOUT[store], lambda number: server.send("namenode", number)
            )
