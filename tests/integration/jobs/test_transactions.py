"""`seamark txn` after kills of a real driver: what it says of each open transaction, and does.

After each verb the job starts again, and the judge counts every row.
"""

from __future__ import annotations

from pathlib import Path

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker
from tests.chaos.checker import Kind
from tests.chaos.driver import wait_until
from tests.chaos.scenario import PassthroughScenario


def test_a_loss_is_accepted_and_the_job_goes_on(kafka: LocalKafka, tmp_path: Path) -> None:
    """The broker has aborted a decided epoch's transactions. Exactly their rows are missing in the
    end, and the record says which and why."""
    with PassthroughScenario(
        tmp_path, kafka.bootstrap_servers, timeout="15s", transaction_timeout="20s"
    ) as scenario:
        scenario.die_at("decided:3")
        epoch = max(scenario.epochs_in("spark/commits"))
        wait_until(
            "the broker's own abort", lambda: not scenario.open_transactions(), 90, pause_s=0.5
        )
        stopped = scenario.start()
        assert stopped.wait(60) == 1
        assert "seamark txn accept-loss" in stopped.text(), stopped.tail()

        loss = ["--sink", "output", "--reason", "the rows are written by hand"]
        refused = scenario.txn("accept-loss", "--epoch", str(epoch - 1), *loss, code=2)
        assert f"epoch {epoch - 1} is committed at every sink" in refused
        refused = scenario.txn("accept-loss", "--epoch", str(epoch + 1), *loss, code=2)
        assert f"epoch {epoch + 1} is not decided" in refused
        accepted = scenario.txn("accept-loss", "--epoch", str(epoch), *loss)
        assert accepted["reason"] == "the rows are written by hand"
        assert accepted["transactions"] and not accepted["unproved"]
        assert (scenario.job_directory / f"losses/{epoch}.output.json").exists()
        again = scenario.txn("accept-loss", "--epoch", str(epoch), *loss)
        assert again == accepted, "the first record stands"

        driver = scenario.start(timeout="4min", transaction_timeout="5min")  # there is a backlog
        driver.wait_for_epochs(3)
        assert "the rows are written by hand" in driver.text()
        scenario.feeder.close()
        wanted = scenario.expected() - accepted["rows"]
        wait_until("all other rows", lambda: scenario.visible() >= wanted, 120, pause_s=0.2)
        driver.stop()
        found = scenario.check()
        assert {anomaly.kind for anomaly in found} == {Kind.LOST}
        assert len(found) == accepted["rows"]
        scenario.require_settled()


def test_no_loss_is_accepted_of_what_can_be_committed(kafka: LocalKafka, tmp_path: Path) -> None:
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        scenario.die_at("decided:3")
        epoch = max(scenario.epochs_in("spark/commits"))
        loss = ["--epoch", str(epoch), "--sink", "output", "--reason", "I think it is lost"]
        refused = scenario.txn("accept-loss", *loss, code=2)
        assert f"nothing of epoch {epoch} is lost" in refused
        assert not (scenario.job_directory / "losses").exists()
        assert scenario.open_transactions() == [], "it is committed now"
        driver = scenario.start()
        driver.wait_for_epochs(2)
        scenario.finish(driver)
        scenario.require_settled()
        checker.require_none(scenario.check())
