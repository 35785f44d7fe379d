"""The plan of faults: a function of the seed alone, pure. `nemesis.py` does what it says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seamark.model.errors import ConfigurationError
from seamark.protocol.points import Point

FAULTS = {
    "driver": "kill -9 of the driver and its processes, at random or at a failpoint",
    "executor": "kill -9 of an executor",
    "python-worker": "kill -9 of Python workers",
    "broker": "kill -9 of the Kafka broker, and its restart",
    "database": "kill -9 of PostgreSQL, and its restart",
    "connection": "a proxy cuts lines, cuts before a request or a reply, delays or drops replies",
    "pause": "SIGSTOP of all processes of the driver, alone or with a second driver, at random or "
    "at a failpoint",
    "disk-full": "the checkpoint storage is full for a while",
}
SIGTERM = "SIGTERM"
"""A driver's `how`: it is asked to end, and must end well."""
SECOND = "with a second driver"
"""A pause's `how`: another driver starts meanwhile."""
_HELD = {
    Point.PRE_COMMITTED: 1, Point.FENCE_CHECKED: 1, Point.PREPARED: 3, Point.DECIDED: 1,
    Point.SEALED: 2, Point.SINK_COMMITTED: 1,
}  # fmt: skip
"""Where a driver stops, to wake up beside its successor; and how often."""
_SUCCESSOR_HELD = {
    "": 6, Point.GENERATION_CLAIMED.value: 1, Point.PREDECESSOR_SEALED.value: 1,
    Point.PREDECESSORS_FENCED.value: 2, Point.SINK_ABORTED.value: 2, Point.RECOVERED.value: 2,
    Point.EPOCH_STARTED.value: 1, Point.PREPARED.value: 1,
}  # fmt: skip
"""Where the successor stops, while the other one wakes up; after it has fenced the other one, a
decision of that one is void."""
_OFTEN = ("driver", "connection")
"""Twice in each round."""
_ONCE = {
    Point.GENERATION_CLAIMED.value, Point.PREDECESSOR_SEALED.value,
    Point.PREDECESSORS_FENCED.value, Point.RECOVERY_COMMITTED.value, Point.SINK_ABORTED.value,
    Point.RECOVERED.value,
}  # fmt: skip
"""Failpoints of a recovery: a driver may reach them only once."""
_HOW = ("cut", "cut a request", "cut a reply", "delay", "drop")


@dataclass(frozen=True)
class Step:
    """One fault. `pause_s` is the calm before it, `aim_s` the time after the next epoch's plan,
    `lasts_s` its length. `how` is a variant, for `driver` the failpoint of the next driver, or "".
    `amount` is a number of its own: the nth reply, the milliseconds of a delay. `chance` picks
    among what is there. `at` and `then` are the failpoints at which a paused driver and its
    successor stop, or ""."""

    number: int
    fault: str
    pause_s: float
    aim_s: float
    lasts_s: float
    how: str
    amount: int
    chance: float
    at: str = ""
    then: str = ""

    def __str__(self) -> str:
        told = {
            "driver": f"{' by' if self.how == SIGTERM else ', then at'} {self.how}"
            * bool(self.how),
            "broker": f" for {self.lasts_s:.1f} s",
            "database": f" for {self.lasts_s:.1f} s",
            "connection": f": {self.how}",
            "pause": f" at {self.at}, {self.how}{f' stopped at {self.then}' * bool(self.then)}"
            if self.at
            else f" for {self.lasts_s:.1f} s{', ' * bool(self.how)}{self.how}",
            "disk-full": f" for {self.lasts_s:.1f} s",
        }
        if self.fault == "connection" and self.how == "delay":
            told["connection"] = f": delay by {self.amount} ms for {self.lasts_s:.1f} s"
        if self.fault == "connection" and self.how == "drop":
            told["connection"] = f": drop replies for {self.lasts_s:.1f} s"
        return f"{self.fault}{told.get(self.fault, '')}"


def steps(seed: int, faults: Sequence[str], failpoints: Sequence[str]) -> Iterator[Step]:
    """Yield faults without end: rounds with each fault of `faults` in random order. `failpoints`
    are those that a driver or a worker of the workload can reach."""
    chance = random.Random(f"seamark verify {seed}")
    number = 0
    while faults:
        round_ = [fault for fault in faults for _ in range(1 + (fault in _OFTEN))]
        chance.shuffle(round_)
        for fault in round_:
            number += 1
            how, amount, at, then = "", 0, "", ""
            if fault == "driver":
                point, nth = chance.choice(failpoints), chance.choice([1, 1, 2, 3])
                point = f"{point}:{1 if point in _ONCE else nth}"
                how = chance.choices([point, "", SIGTERM], [6, 3, 1])[0]
            elif fault == "connection":
                how = chance.choice(_HOW)
                amount = chance.randint(1, 8) if how.startswith("cut") else chance.randint(50, 400)
            elif fault == "pause" and chance.random() < 0.75:
                how = SECOND
                if chance.random() < 0.8:
                    (held,) = chance.choices([*_HELD], [*_HELD.values()])
                    at = f"{held.value}:{chance.choice([1, 1, 2, 3])}"
                    (then,) = chance.choices([*_SUCCESSOR_HELD], [*_SUCCESSOR_HELD.values()])
            yield Step(
                number, fault, chance.uniform(0, 3), chance.uniform(0, 0.35),
                chance.uniform(0.5, 6), how, amount, chance.random(), at, then,
            )  # fmt: skip


def checked(text: str) -> list[str]:
    """Return the faults named by a comma-separated list. Raises ConfigurationError for another
    name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in FAULTS:
            raise ConfigurationError(
                f"--faults: {name!r} is no fault; known are {', '.join(FAULTS)}"
            )
    if not names:
        raise ConfigurationError(f"--faults is {text!r}; give some of {', '.join(FAULTS)}")
    return list(dict.fromkeys(names))
