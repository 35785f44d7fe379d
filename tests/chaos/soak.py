"""``make soak``: random kills of everything, for half an hour; then every row is counted.

    python -m tests.chaos.soak --minutes 30 --seed 7

Half of the time goes to Kafka -> Kafka, half to Kafka -> counts in Kafka and SQLite. A producer and
a read_committed reader run all the time. The next step, and the pause before it, come from the
seed; their effect on the processes depends on timing. Kills are aimed: a transaction is open for a
fraction of an epoch only, right after Spark has planned it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker
from tests.chaos.driver import Driver
from tests.chaos.matrix import MATRIX, PROTOCOL_POINTS
from tests.chaos.scenario import PassthroughScenario, WindowsScenario

APPS = {"passthrough": PassthroughScenario, "windows": WindowsScenario}
FATAL = ("LostTransactionError", "CheckpointError", "DecisionMissingError", "CorruptRecordError")
"""Messages forbidden to a job here: nobody has deleted a file or stayed away for long."""
DRAIN_TIMEOUT_S = 300.0


class Soak:
    """One app under random kills; `counts` is the report."""

    def __init__(self, app: str, scenario: PassthroughScenario, kafka: LocalKafka, seed: str):
        self._app = app
        self._scenario = scenario
        self._kafka = kafka
        self._chance = random.Random(seed)
        self._driver: Driver | None = None
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self, minutes: float) -> list[checker.Anomaly]:
        """Do random harm for a while, then drain, stop and judge."""
        harms: list[tuple[int, Callable[[Driver], None]]] = [
            (6, self.kill_driver),
            (6, self.kill_worker),
            (3, self.kill_broker),
            (3, self.freeze_driver),
            (2, self.stop_driver),
        ]
        deadline = time.monotonic() + minutes * 60
        while time.monotonic() < deadline:
            if self._driver is None and self._chance.random() < 0.5:
                self.die_at_failpoint()
                continue
            driver = self.running()
            if driver is None:
                continue
            time.sleep(self._chance.uniform(0, 3))
            weights = [weight for weight, _ in harms]
            self._chance.choices([harm for _, harm in harms], weights)[0](driver)
            if self._driver is not None and self._driver.returncode is not None:
                self.ended()
        last = self.running()
        while last is None:
            last = self.running()
        self._scenario.drain(last, DRAIN_TIMEOUT_S)
        last.stop()
        if left := self._scenario.open_transactions():
            self.errors.append(f"transactions still open after the stop: {left}")
        return self._scenario.check()

    # --- drivers come and go

    def running(self) -> Driver | None:
        """Return a driver after its first committed epoch with rows; None if it ended before."""
        if self._driver is None:
            self.note_pending()
            self._driver = self._scenario.start()
            self.counts["starts"] += 1
        try:
            self._driver.wait_for_epochs(1, 120)
        except AssertionError:
            if self._driver.returncode is None:
                raise
            self.ended()
            return None
        return self._driver

    def ended(self) -> None:
        """Note a driver's end by itself."""
        driver, self._driver = self._driver, None
        assert driver is not None
        driver.kill_tree()
        self.counts[f"ended by itself with {driver.returncode}"] += 1
        for name in FATAL:
            if name in driver.text():
                self.errors.append(f"{driver}: {name}\n{driver.tail(15)}")

    def note_pending(self) -> None:
        """Count the transactions left to the next driver."""
        directory = self._scenario.job_directory / "epochs"
        decided = self._scenario.epochs_in("spark/commits")
        for epoch in self._scenario.epochs_in("epochs"):
            record = directory / str(epoch)
            if any(record.glob("prepared.*")) and not (record / "committed.json").exists():
                again = epoch in decided
                self.counts["epochs committed again" if again else "epochs run again"] += 1

    def dead(self) -> None:
        """Kill the driver's tree, and count the transactions left open."""
        driver, self._driver = self._driver, None
        assert driver is not None
        driver.kill_tree()
        if self._scenario.open_transactions():
            self.counts["kills that hit an open transaction"] += 1

    # --- harms

    def aim(self) -> None:
        """Return within the next epoch: somewhere between its plan and its commit."""
        known = self._scenario.epochs_in("spark/offsets")
        deadline = time.monotonic() + 5
        while self._scenario.epochs_in("spark/offsets") <= known and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self._chance.uniform(0, 0.35))

    def kill_driver(self, driver: Driver) -> None:
        """SIGKILL for the whole tree."""
        self.counts["driver -9"] += 1
        self.aim()
        self.dead()

    def kill_worker(self, driver: Driver) -> None:
        """SIGKILL for one Python worker."""
        self.counts["worker -9"] += 1
        self.aim()
        workers = driver.workers()
        if workers:
            self._chance.choice(workers).kill()

    def kill_broker(self, driver: Driver) -> None:
        """SIGKILL for the broker, and a restart."""
        self.counts["broker -9"] += 1
        self.aim()
        self._kafka.kill(1)
        time.sleep(self._chance.uniform(0.2, 5))
        self._kafka.restart(1)

    def stop_driver(self, driver: Driver) -> None:
        """SIGTERM; it must end well."""
        self.counts["SIGTERM"] += 1
        self.aim()
        if driver.returncode is None:
            driver.stop()
            self._driver = None
            if left := self._scenario.open_transactions():
                self.errors.append(f"{driver}: open after SIGTERM: {left}")

    def freeze_driver(self, driver: Driver) -> None:
        """SIGSTOP, a second driver, SIGCONT: the first must end by itself."""
        self.counts["frozen, with a second driver"] += 1
        self.aim()
        driver.freeze()
        self._driver = None
        self.note_pending()
        self._driver = self._scenario.start()
        self.counts["starts"] += 1
        if self._chance.random() < 0.7:
            second = self.running()
            if second is None:
                self.counts["the second driver ended"] += 1
        else:  # wake it while its successor recovers
            time.sleep(self._chance.uniform(0, 10))
        driver.thaw()
        code = driver.wait(120)
        driver.kill_tree()
        if code == 0:
            self.errors.append(f"{driver} was superseded and ended with 0\n{driver.tail(15)}")

    def die_at_failpoint(self) -> None:
        """Start a driver with a failpoint, and give it a while to die there."""
        row = MATRIX[self._app]
        points = [*PROTOCOL_POINTS, *row.committer_points, *row.writer_points]
        failpoint = f"{self._chance.choice(points)}:{self._chance.choice([1, 1, 2, 3, 5])}"
        self.note_pending()
        self._driver = driver = self._scenario.start(failpoint)
        self.counts["starts"] += 1
        deadline = time.monotonic() + 60
        while (
            driver.returncode is None and len(driver.epochs()) < 8 and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        if driver.returncode == -signal.SIGKILL:
            self.counts["failpoints reached"] += 1
        elif driver.returncode is not None:
            self.ended()
            return
        else:
            self.counts["failpoints not reached, then driver -9"] += 1
        self.dead()


def soak(app: str, minutes: float, seed: int, directory: Path) -> tuple[dict[str, object], bool]:
    """Run one app; return its report and whether all was well."""
    directory.mkdir(parents=True)
    with (
        LocalKafka(directory=directory / "kafka") as kafka,
        APPS[app](directory, kafka.bootstrap_servers) as scenario,
    ):
        soaked = Soak(app, scenario, kafka, f"{seed}-{app}")
        try:
            anomalies = soaked.run(minutes)
        except AssertionError as error:
            soaked.errors.append(str(error))
            anomalies = scenario.check()
        for anomaly in anomalies[:20]:
            print(anomaly, flush=True)
        for error in soaked.errors:
            print(error, flush=True)
        report = {
            "app": app,
            "minutes": minutes,
            "rows": len(scenario.feeder.rows),
            **checker.summary(anomalies),
            "errors": len(soaked.errors),
            **dict(sorted(soaked.counts.items())),
        }
        return report, not anomalies and not soaked.errors


def main() -> int:
    """Run the soak; 1 on any anomaly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="for all apps together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--app", choices=sorted(APPS), help="one app only")
    arguments = parser.parse_args()
    apps = [arguments.app] if arguments.app else sorted(APPS)
    print(f"seed {arguments.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="seamark-soak-"))
    good = True
    for app in apps:
        report, well = soak(app, arguments.minutes / len(apps), arguments.seed, directory / app)
        print(json.dumps(report, indent=2), flush=True)
        good = good and well
    if good:
        shutil.rmtree(directory)
    else:
        print(f"logs and checkpoints are kept in {directory}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
