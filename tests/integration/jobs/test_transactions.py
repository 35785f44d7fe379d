"""`seamark txn` after kills of a real driver: what it says of each open transaction, and does.

After each verb the job starts again, and the judge counts every row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker
from tests.chaos.checker import Kind
from tests.chaos.driver import Driver, wait_until
from tests.chaos.outputs import FilesOutput, KafkaOutput, MySQLOutput, Output, PostgresOutput
from tests.chaos.scenario import PassthroughScenario, SinksScenario
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer


def test_a_loss_is_accepted_and_the_job_goes_on(kafka: LocalKafka, tmp_path: Path) -> None:
    """The broker has aborted a decided epoch's transactions. Exactly their rows are missing in the
    end, and the record says which and why."""
    with PassthroughScenario(
        tmp_path, kafka.bootstrap_servers, timeout="60s", transaction_timeout="65s"
    ) as scenario:
        scenario.die_at("decided:3")
        epoch = max(scenario.epochs_in("spark/commits"))
        wait_until(
            "the broker's own abort", lambda: not scenario.open_transactions(), 150, pause_s=0.5
        )
        stopped = scenario.start()
        assert stopped.wait(120) == 1
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
        assert sum(len(anomaly.rows) for anomaly in found) == accepted["rows"]
        scenario.require_settled()


@pytest.mark.chaos
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


def verdicts(found: list[dict[str, Any]]) -> dict[str, set[str]]:
    by_sink = defaultdict(set)
    for one in found:
        by_sink[one["sink"]].add(one["verdict"])
    return dict(by_sink)


@pytest.fixture
def scenario(kafka: LocalKafka, tmp_path: Path) -> Iterator[SinksScenario]:
    """One job into Kafka, PostgreSQL, MariaDB and files, in every way that leaves transactions."""
    with needed("MariaDB"):
        mariadb = MariaDBServer()
    with mariadb, PostgresServer() as postgres:
        outputs: list[Output] = [
            KafkaOutput(kafka.bootstrap_servers),
            PostgresOutput(postgres, "prepared"),
            PostgresOutput(postgres, "staged"),
            MySQLOutput(mariadb, "xa"),
            MySQLOutput(mariadb, "staged"),
            FilesOutput(tmp_path),
        ]
        with SinksScenario(tmp_path, outputs) as scenario:
            yield scenario


def go_on(scenario: SinksScenario) -> Driver:
    driver = scenario.start()
    driver.wait_for_epochs(2)
    return driver


def end(scenario: SinksScenario, driver: Driver) -> None:
    """0 lost, 0 doubled, nothing open."""
    scenario.finish(driver)
    scenario.require_settled()


def test_killed_before_the_decision_and_aborted_by_hand(scenario: SinksScenario) -> None:
    uids = {output.uid for output in scenario.outputs}
    scenario.die_at("prepared:3")
    found = scenario.txn("list")
    assert verdicts(found) == {uid: {"safe to abort"} for uid in uids}
    assert all(one["stored"] and one["epoch"] >= 0 for one in found)
    in_kafka = [one for one in found if one["sink"] == "rows-to-kafka"]
    assert all(0 <= one["age"] < one["age"] + one["time-left"] <= 900_000 for one in in_kafka)
    held = [each for one in in_kafka for each in one["held-up"]]
    assert held and all(each["rows"] > 0 for each in held)
    oldest = Counter(each["place"] for each in held if each["first"])
    assert oldest == dict.fromkeys({each["place"] for each in held}, 1)
    untold = {"rows-to-postgres-staged", "rows-to-mysql-xa"}
    assert {one["sink"] for one in found if one["age"] < 0} == untold
    assert {one["sink"] for one in found if one["time-left"] >= 0} == {"rows-to-kafka"}

    names = [option for one in found for option in ("-t", one["transaction"])]
    assert "would show rows twice" in scenario.txn("commit", *names, code=2)
    visible = scenario.visible()
    done = scenario.txn("abort", "--all-lingering")
    assert {one["transaction"] for one in done} == {one["transaction"] for one in found}
    assert {o.uid: o.left_open() for o in scenario.outputs} == {uid: [] for uid in uids}
    assert scenario.visible() == visible
    end(scenario, go_on(scenario))


def test_killed_after_the_decision_and_committed_by_hand(scenario: SinksScenario) -> None:
    uids = {output.uid for output in scenario.outputs}
    scenario.die_at("decided:3")
    found = scenario.txn("list")
    stored = [one for one in found if one["stored"]]
    assert verdicts(stored) == {uid: {"must commit"} for uid in uids}
    names = [option for one in stored for option in ("-t", one["transaction"])]
    assert "would lose rows" in scenario.txn("abort", *names, code=2)
    visible = scenario.visible()
    done = scenario.txn("commit", "--all-lingering")
    assert {one["transaction"] for one in done} == {one["transaction"] for one in stored}
    assert scenario.visible() > visible
    driver = go_on(scenario)
    assert set().union(*verdicts(scenario.txn("list")).values()) <= {"in use"}
    loss = ["--epoch", "1", "--sink", "rows-to-kafka", "--reason", "no"]
    assert "runs: its driver finds the loss" in scenario.txn("accept-loss", *loss, code=2)
    end(scenario, driver)


@pytest.fixture
def two_sinks(kafka: LocalKafka, tmp_path: Path) -> Iterator[SinksScenario]:
    with PostgresServer() as postgres:
        outputs = [KafkaOutput(kafka.bootstrap_servers), PostgresOutput(postgres, "prepared")]
        with SinksScenario(tmp_path, outputs) as scenario:
            yield scenario


@pytest.mark.chaos
def test_decided_transactions_aborted_by_force_are_lost_and_nothing_else(
    two_sinks: SinksScenario,
) -> None:
    two_sinks.die_at("decided:3")
    epoch = max(two_sinks.epochs_in("spark/commits"))
    stored = [one for one in two_sinks.txn("list") if one["stored"]]
    names = [option for one in stored for option in ("-t", one["transaction"])]
    assert "--force does it all the same" in two_sinks.txn("abort", *names, code=2)
    done = two_sinks.txn("abort", "--force", *names)
    assert {one["transaction"] for one in done} == {one["transaction"] for one in stored}
    assert [output.left_open() for output in two_sinks.outputs] == [[], []]

    stopped = two_sinks.start()
    assert stopped.wait(120) == 1
    assert "seamark txn accept-loss" in stopped.text(), stopped.tail()
    lost = {}
    for output in two_sinks.outputs:
        loss = ["--epoch", str(epoch), "--sink", output.uid, "--reason", "aborted by force"]
        lost[output.uid] = two_sinks.txn("accept-loss", *loss)["rows"]
    (rows,) = set(lost.values())  # of the same epoch
    driver = go_on(two_sinks)
    two_sinks.feeder.close()
    wanted = two_sinks.expected() - 2 * rows
    wait_until("all other rows", lambda: two_sinks.visible() >= wanted, 120, pause_s=0.2)
    driver.stop()
    found = two_sinks.check()
    assert {anomaly.kind for anomaly in found} == {Kind.LOST}
    assert sum(len(anomaly.rows) for anomaly in found) == 2 * rows
    two_sinks.require_settled()


@pytest.mark.chaos
def test_undecided_transactions_committed_by_force_stop_every_start(
    two_sinks: SinksScenario,
) -> None:
    """Their rows are visible, and a job that went on would write them again."""
    two_sinks.die_at("prepared:3")
    found = two_sinks.txn("list")
    names = [option for one in found for option in ("-t", one["transaction"])]
    assert "--force does it all the same" in two_sinks.txn("commit", *names, code=2)
    before = two_sinks.visible()
    done = two_sinks.txn("commit", "--force", *names)
    assert {one["transaction"] for one in done} == {one["transaction"] for one in found}
    visible = two_sinks.visible()
    assert visible > before
    for _ in range(2):
        stopped = two_sinks.start()
        assert stopped.wait(120) == 1
        assert "are committed already, and not by a driver of this job" in stopped.text()
    assert two_sinks.visible() == visible
    assert [output.left_open() for output in two_sinks.outputs] == [[], []]
