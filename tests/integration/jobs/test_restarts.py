"""Starts after a bad end: a decision gone, a transaction gone.

And after a good end: a job over a bounded input, started again and again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker, workload
from tests.chaos.driver import wait_until
from tests.chaos.scenario import PassthroughScenario


def test_decision_deleted_by_hand(kafka: LocalKafka, tmp_path: Path) -> None:
    """Running the epoch again would double it, so the next start puts the decision back."""
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        driver = scenario.start()
        driver.wait_for_epochs(3)
        scenario.finish(driver)
        commits = scenario.job_directory / "spark/commits"
        newest = max(scenario.epochs_in("spark/commits"))
        (commits / str(newest)).unlink()
        for path in commits.glob(f".{newest}.*"):
            path.unlink()
        driver = scenario.start()
        wait_until(
            "recovery", lambda: f"goes on after epoch {newest}" in driver.text(), 60, pause_s=0.5
        )
        scenario.finish(driver)
        assert f"/commits/{newest} back" in driver.text(), driver.tail()
        checker.require_none(scenario.check())


@pytest.mark.chaos
def test_away_for_longer_than_the_transaction_timeout(kafka: LocalKafka, tmp_path: Path) -> None:
    """The broker aborts a decided epoch's transactions: every start must fail, and name them."""
    with PassthroughScenario(
        tmp_path, kafka.bootstrap_servers, timeout="25s", transaction_timeout="30s"
    ) as scenario:
        scenario.die_at("decided:3")
        wait_until(
            "the broker's own abort", lambda: not scenario.open_transactions(), 90, pause_s=0.5
        )
        epoch = max(scenario.epochs_in("spark/commits"))
        visible = len(workload.read_topic(kafka.bootstrap_servers, scenario.output))
        for _ in range(2):
            driver = scenario.start()
            assert driver.wait(60) == 1
            assert "LostTransactionError" in driver.text(), driver.tail()
            assert "sink 'output'" in driver.text()
            assert f"epoch {epoch} is decided" in driver.text()
        assert len(workload.read_topic(kafka.bootstrap_servers, scenario.output)) == visible


def test_away_for_longer_than_the_transaction_timeout_with_a_spool(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    """The rows are written again, once, though the driver dies at each new point on the way, and
    comes up so slowly that the broker may abort a rewrite too."""
    with PassthroughScenario(
        tmp_path, kafka.bootstrap_servers, transaction_timeout="10s", spool=True
    ) as scenario:
        scenario.die_at("decided:3")
        wait_until(
            "the broker's own abort", lambda: not scenario.open_transactions(), 60, pause_s=0.5
        )
        epoch = max(scenario.epochs_in("spark/commits"))
        last = scenario.die_at_each(
            ["rewrite-prepared:1", "rewrite-recorded:1", "rewrite-committed:1", "committed:1"]
        )
        assert f"of the decided epoch {epoch} is lost" in scenario.drivers[1].text()
        records = scenario.job_directory / "rewritten/output" / str(epoch)
        assert list(records.iterdir())
        last.wait_for_epochs(3)
        scenario.finish(last)
        spools = [int(path.name) for path in (scenario.job_directory / "wal/output").iterdir()]
        assert all(spool > max(last.epochs()) - 2 for spool in spools), "they are deleted"


def test_bounded_job_commits_its_last_epoch_and_ends(kafka: LocalKafka, tmp_path: Path) -> None:
    """After the last epoch Spark plans no other one, so nothing later could commit it."""
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers, ending="latest") as scenario:
        wait_until("some input", lambda: len(scenario.feeder.rows) > 1000, 30)
        scenario.feeder.close()
        scenario.die_at("decided:1")
        again = scenario.start()
        assert again.wait(60) == 0, again.tail()
        checker.require_none(scenario.check())
        assert len(scenario.reader.rows) > 1000
        nothing_new = scenario.start()
        assert nothing_new.wait(60) == 0, nothing_new.tail()
        checker.require_none(scenario.check())
        assert scenario.open_transactions() == []
