"""Does the harm that `plan.py` says, to a job and its systems."""

import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from seamark.model import failpoints
from seamark.verify.driver import DriverProcess
from seamark.verify.faulty_job import FaultyJob, fatal_in
from seamark.verify.plan import HOLD, SIGTERM, Step
from seamark.verify.systems import Systems

DIED_AT = "died at"
"""In what came of a step: a process has died by its own failpoint."""
REACH_EPOCHS = 6
"""How many epochs a driver may commit on its way to its failpoint, before it is killed where it
is; and half the job's patience is its time."""
DIES_S = 2.0
"""How long a driver whose process has said that it dies may live on: then it was a worker's word,
and its driver, amid the worker's task or the next, dies too."""
OLD_ACTS_S = 15.0
"""How long a successor stands still at its failpoint, for the one before it to act and end."""
EXECUTORS = {
    "PYSPARK_SUBMIT_ARGS": "--master local-cluster[2,1,1024] pyspark-shell",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
}
"""Environment of a driver whose tasks run in two executors of their own."""


class Nemesis:
    """Does one step after the other; each returns what came of it, for the time-line."""

    def __init__(self, systems: Systems, job: FaultyJob) -> None:
        self._systems = systems
        self._job = job
        self._by_fault: dict[str, Callable[[Step], str]] = {
            "driver": self._driver,
            "executor": self._executor,
            "python-worker": self._python_worker,
            "broker": self._broker,
            "database": self._database,
            "connection": self._connection,
            "pause": self._pause,
            "disk-full": self._disk_full,
            "clock": self._clock,
        }

    def do(self, step: Step) -> str:
        """Do one step; return what came of it."""
        return self._by_fault[step.fault](step)

    def _driver(self, step: Step) -> str:
        self._job.aim(step.aim_s)
        if step.how == SIGTERM:
            self._stop()
            self._job.start()
            return "ended"
        self._job.driver.kill_tree()
        deaths = [self._die_at(point) for point in (step.at, step.then) if point]
        self._job.start()
        return ", then ".join(["killed", *deaths])

    def _die_at(self, failpoint: str) -> str:
        """Start a driver with this failpoint, and tell how it, or a worker of it, has died."""
        self._job.start(failpoint)
        driver = self._job.driver
        line = failpoints.reached_line(failpoint.partition(":")[0])
        self._await(driver, lambda: line in driver.text())
        self._await_end(driver, DIES_S)
        code = driver.returncode
        if code is None or code == -signal.SIGKILL:
            driver.kill_tree()
        else:
            self._job.ended()
        if line not in driver.text():
            return f"ended with {code}, or was killed again: {failpoint} was not reached"
        return f"{'' if code == -signal.SIGKILL else 'a worker '}{DIED_AT} {failpoint}"

    def _await(self, driver: DriverProcess, reached: Callable[[], bool]) -> bool:
        """Wait for a failpoint until the driver has ended, or has had its chances."""
        epochs, deadline = self._job.epochs_done(), time.monotonic() + self._job.patience_s / 2
        while not (there := reached()) and (
            driver.returncode is None
            and self._job.epochs_done() < epochs + REACH_EPOCHS
            and time.monotonic() < deadline
        ):
            self._job.check()
            time.sleep(0.05)
        return there

    def _executor(self, step: Step) -> str:
        """Executors are there on a cluster only, so the next driver gets one."""
        self._stop()
        home = spark_home(self._systems.storage.with_name("spark"))
        shutil.rmtree(home / "work", ignore_errors=True)  # each executor has a copy of all jars
        self._job.start(environment={**EXECUTORS, "SPARK_HOME": str(home)})
        if not self._job.recovered(self._job.patience_s):
            self._job.fail(f"no epoch of a driver with executors\n{self._job.driver.tail(15)}")
            return "not done"
        self._job.aim(step.aim_s)
        executors = self._job.driver.executors()
        if not executors:
            self._job.fail(f"{self._job.driver} had no executor")
            return "not done"
        executors[int(step.chance * len(executors))].kill()
        return f"one of {len(executors)} killed"

    def _python_worker(self, step: Step) -> str:
        self._job.aim(step.aim_s)
        workers = self._job.driver.workers()
        if step.chance > 0.3:
            workers = workers[int(step.chance * len(workers)) :][:1]
        for worker in workers:
            worker.kill()
        return f"{len(workers)} killed"

    def _broker(self, step: Step) -> str:
        assert self._systems.kafka is not None
        broker = 1 + int(step.chance * self._systems.kafka.brokers)
        kill, restart = self._systems.kafka.kill, self._systems.kafka.restart
        self._for_a_while(step, lambda: kill(broker), lambda: restart(broker))
        return f"broker {broker} killed and restarted"

    def _database(self, step: Step) -> str:
        assert self._systems.postgres is not None
        self._for_a_while(step, self._systems.postgres.kill, self._systems.postgres.start)
        return "killed and restarted"

    def _for_a_while(
        self, step: Step, harm: Callable[[], object], undo: Callable[[], object]
    ) -> None:
        self._job.aim(step.aim_s)
        harm()
        time.sleep(step.lasts_s)
        undo()

    def _connection(self, step: Step) -> str:
        names = sorted(self._systems.proxies)
        name = names[int(step.chance * len(names))]
        proxy, before = self._systems.proxies[name], self._systems.proxies[name].cuts
        self._job.aim(step.aim_s)
        if step.how == HOLD:
            return self._hold(step.lasts_s)
        if step.how == "delay":
            proxy.delay_s = step.amount / 1000
            time.sleep(step.lasts_s)
            proxy.delay_s = 0.0
            return f"to {name}, each reply"
        if step.how == "drop":
            proxy.drops = True
            time.sleep(step.lasts_s)
            proxy.drops = False
            return f"to {name}"
        if step.how == "cut":
            proxy.cut_all()
        else:
            proxy.cut_at("request" if step.how == "cut a request" else "reply", step.amount)
            time.sleep(2)
        return f"to {name}, {proxy.cuts - before} lines"

    def _hold(self, seconds: float) -> str:
        """Each server's next commit: the sinks of an epoch commit one after the other."""
        proxies = self._systems.proxies
        before = {name: proxy.held for name, proxy in proxies.items()}
        for proxy in proxies.values():
            proxy.hold_s = seconds
        time.sleep(seconds * len(proxies) + 1)
        for proxy in proxies.values():
            proxy.hold_s = 0.0
        return f"at {', '.join(n for n, p in proxies.items() if p.held > before[n]) or 'none'}"

    def _pause(self, step: Step) -> str:
        if step.at:
            self._job.driver.kill_tree()
            if not self._stop_at(step.at):
                return f"killed; {step.at} was not reached"
        else:
            self._job.aim(step.aim_s)
        old = self._job.driver
        old.freeze()
        if not step.how:
            time.sleep(step.lasts_s)
            old.thaw()
            return "woken"
        when = self._succeed(old, step)
        self._await_end(old, self._job.patience_s)
        code = old.wait(0.1)
        old.kill_tree()
        if code == 0:
            self._job.fail(f"{old} was superseded and ended with 0: it must stop with an error")
        for name in fatal_in(old):
            self._job.fail(f"{old} was superseded and met {name}\n{old.tail(15)}")
        return f"woken {when}, ended with {code}"

    def _succeed(self, old: DriverProcess, step: Step) -> str:
        """Start a successor of a frozen driver, and wake that one up; return when."""
        if step.then:
            held = self._stop_at(step.then)
            successor = self._job.driver
            successor.freeze()
            old.thaw()
            self._await_end(old, OLD_ACTS_S)
            successor.thaw()
            return f"while its successor {'stood' if held else 'did not get'} at {step.then}"
        self._job.start()
        if step.chance < 0.7:
            self._job.recovered(self._job.patience_s)
        else:  # while its successor recovers
            time.sleep(random.Random(step.chance).uniform(0, 10))
        old.thaw()
        return "after its successor had come"

    def _await_end(self, driver: DriverProcess, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while driver.returncode is None and time.monotonic() < deadline:
            self._job.check()
            time.sleep(0.05)

    def _stop_at(self, failpoint: str) -> bool:
        """Start a driver that stops at a failpoint; return whether it did."""
        self._job.start(f"{failpoint}{failpoints.STOP}")
        driver = self._job.driver
        line = failpoints.reached_line(failpoint.partition(":")[0], stops=True)
        # The line comes first: a driver that is woken before it stops would stop for ever.
        return self._await(driver, lambda: line in driver.text() and driver.is_stopped)

    def _disk_full(self, step: Step) -> str:
        assert self._systems.disk is not None
        self._for_a_while(step, self._systems.disk.fill, self._systems.disk.free)
        return "full, and free again"

    def _clock(self, step: Step) -> str:
        """A step back is small: Spark begins no epoch before its clock is there again."""
        clock = self._systems.clock
        assert clock is not None
        self._job.aim(step.aim_s)
        self._job.driver.kill_tree()
        clock.set(step.amount)
        self._job.start(environment=clock.environment)
        if not self._job.recovered(self._job.patience_s):
            self._job.fail(f"no epoch with a wrong clock\n{self._job.driver.tail(15)}")
            return "not done"
        clock.set(step.amount + step.lasts_s * (1 if step.how == "more" else -1))
        time.sleep(step.lasts_s)
        return "killed, then wrong, then stepped"

    def _stop(self) -> None:
        if self._job.driver.returncode is None:
            self._job.stop(self._job.patience_s)
        self._job.driver.kill_tree()


def spark_home(directory: Path) -> Path:
    """Return `directory` as a Spark of links to the installed one: executors keep their logs and
    jars below Spark's own directory, and the installed one stays as it was."""
    if not directory.exists():
        directory.mkdir()
        for part in Path(_find_spark_home()).iterdir():
            if part.name != "work":
                (directory / part.name).symlink_to(part.resolve())
    return directory
