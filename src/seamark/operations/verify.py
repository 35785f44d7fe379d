"""`seamark verify`: a job under faults, on real systems, with every row counted."""

import random
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seamark.model.errors import ConfigurationError, UserError
from seamark.model.packages import load_driver
from seamark.model.redaction import redact
from seamark.operations.verify_app import AppUnderTest, DeclaredApp, declared
from seamark.operations.verify_app import workload as app_workload
from seamark.verify import plan
from seamark.verify.outcome import Outcome

DEFAULT_WORKLOAD = "kafka-to-kafka"


@dataclass(frozen=True)
class Verification:
    """What is asked for: a workload by name (None is DEFAULT_WORKLOAD), or a program. `faults` None
    is every fault that can be had here; `seed` None is a new one. `brokers` are those of a Kafka of
    our own. `stop_at_first`: the first finding ends it."""

    workload: str | None = None
    app: AppUnderTest | None = None
    faults: str | None = None
    minutes: float = 3.0
    seed: int | None = None
    brokers: int = 1
    stop_at_first: bool = False

    def command(self, seed: int) -> str:
        """Return the command that repeats it."""
        parts = ["seamark", "verify"]
        if self.faults is not None:
            parts += ["--faults", self.faults]
        parts += ["--minutes", f"{self.minutes:g}", "--seed", str(seed)]
        parts += ["--brokers", str(self.brokers)] if self.brokers != 1 else []
        parts += ["--stop-at-first"] if self.stop_at_first else []
        if self.app is None:
            return shlex.join([*parts, "--workload", self.workload or DEFAULT_WORKLOAD])
        app = self.app
        parts += ["--id", app.id, *(["--row", app.row] if app.row is not None else [])]
        parts += [] if app.ordered else ["--unordered"]
        for option, address in (("--kafka", app.kafka), ("--postgres", app.postgres)):
            parts += [option, redact(address)] if address else []
        return shlex.join([*parts, "--app", str(app.app), *app.arguments])


def verify(asked: Verification, say: Callable[[str], None]) -> tuple[Outcome, Path]:
    """Run it; return what was found, and the directory of the drivers' logs and checkpoints, which
    is kept where something was found. `say` gets lines of progress. Raises ConfigurationError for a
    wrong fault, workload or length, MissingDependencyError without a package or server that it
    needs, before anything is started."""
    if not asked.minutes > 0:
        raise ConfigurationError(f"--minutes is {asked.minutes:g}; give more than 0")
    if asked.brokers not in (1, 3):
        raise ConfigurationError(f"--brokers is {asked.brokers}; give 1 or 3")
    wanted = plan.checked(asked.faults) if asked.faults is not None else list(plan.FAULTS)
    for package in ("psutil", "confluent_kafka"):
        load_driver(package, "seamark verify needs it", "verify,kafka")
    from seamark.verify.workloads import WORKLOADS

    name = asked.workload or DEFAULT_WORKLOAD
    if name not in WORKLOADS:
        raise ConfigurationError(f"--workload: {name!r} is none; known are {', '.join(WORKLOADS)}")
    app = declared(asked.app) if asked.app is not None else None
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    shown = asked.app.app.name if asked.app else name
    outcome = Outcome(shown, seed, asked.command(seed), time.time(), faults=wanted)
    say(f"seed {seed}; to repeat: {outcome.command}")
    directory = Path(tempfile.mkdtemp(prefix="seamark-verify-"))
    try:
        _run(asked, app, outcome, directory, say)
    except UserError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    if outcome.good:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome, directory


def _run(
    asked: Verification,
    under_test: DeclaredApp | None,
    outcome: Outcome,
    directory: Path,
    say: Callable[[str], None],
) -> None:
    from seamark.verify.readers import share_memory
    from seamark.verify.systems import Systems
    from seamark.verify.trial import Trial
    from seamark.verify.workloads import WORKLOADS

    share_memory()
    app, name, wanted = asked.app, asked.workload or DEFAULT_WORKLOAD, outcome.faults
    needs_postgres = under_test.needs_postgres if under_test else WORKLOADS[name].needs_postgres
    given = (app.kafka, app.postgres) if app else (None, None)
    with Systems(directory, wanted, given, needs_postgres, asked.brokers) as systems:
        outcome.left_out = {f: why for f, why in systems.left_out.items() if f in wanted}
        outcome.faults = [fault for fault in wanted if fault not in outcome.left_out]
        for what, why in outcome.left_out.items():
            say(f"left out: {what}: {why}")
        if not outcome.faults:
            raise ConfigurationError(
                f"--faults: none of {', '.join(wanted)} can be had here; give others"
            )
        if app is not None and under_test is not None:
            workload = app_workload(app, under_test, systems, directory)
            outcome.not_read = {f"sink {uid}": why for uid, why in under_test.not_read.items()}
        else:
            workload = WORKLOADS[name].make(name, systems, directory)
        for what, why in outcome.not_read.items():
            say(f"left out: {what}: {why}")
        outcome.sinks = [sink.name for sink in workload.sinks]
        steps = plan.steps(outcome.seed, outcome.faults, workload.failpoints)
        trial = Trial(workload, systems, outcome, say, stop_at_first=asked.stop_at_first)
        trial.run(steps, asked.minutes)
