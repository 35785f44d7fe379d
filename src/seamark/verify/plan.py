"""The plan of faults: a function of the seed alone, pure. `nemesis.py` does what it says."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from seamark.model.errors import ConfigurationError
from seamark.protocol.points import Point

T = TypeVar("T")

FAULTS = {
    "driver": "kill -9 of the driver and its processes, at random or at a failpoint",
    "executor": "kill -9 of an executor",
    "python-worker": "kill -9 of Python workers",
    "broker": "kill -9 of the Kafka broker, and its restart",
    "database": "kill -9 of PostgreSQL, and its restart",
    "connection": "a proxy cuts lines, cuts before a request or a reply, delays or drops replies, "
    "holds a commit back",
    "pause": "SIGSTOP of all processes of the driver, alone or with a second driver, at random or "
    "at a failpoint",
    "disk-full": "the checkpoint storage is full for a while",
    "clock": "the clock of the next driver is wrong, and steps",
}
SIGTERM = "SIGTERM"
"""A driver's `how`: it is asked to end, and must end well."""
SECOND = "with a second driver"
"""A pause's `how`: another driver starts meanwhile."""
HOLD = "hold a commit"
"""A connection's `how`: one line stands still, from the next commit on."""
_WRITTEN = {
    "transaction-begun", "transaction-flushed", "transaction-prepared", "stage-written",
    Point.PRE_COMMITTED.value, Point.FENCE_CHECKED.value,
}  # fmt: skip
_STORED = {Point.PREPARED.value}
_DECIDED = {Point.DECIDED.value}
_COMMITTING = {
    Point.SEALED.value, Point.SINK_COMMITTED.value, "end-transaction-sent", "prepared-committed",
    "ledger-committed",
}  # fmt: skip
_RECOVERY = {
    Point.GENERATION_CLAIMED.value, Point.PREDECESSOR_SEALED.value,
    Point.PREDECESSORS_FENCED.value, Point.RECOVERY_COMMITTED.value, Point.SINK_ABORTED.value,
    Point.RECOVERED.value,
}  # fmt: skip
"""Failpoints of a recovery: a driver may reach them only once."""
_KINDS = (_WRITTEN, _STORED, _DECIDED, _COMMITTING, _RECOVERY)
"""Failpoints between the same two records: dead there, a driver leaves the same to its successor.
What is left over, deaths at random and SIGTERM are one kind more."""
_FENCED = (Point.PREDECESSORS_FENCED.value, Point.SINK_ABORTED.value, Point.RECOVERED.value)
_STOPS = (
    ((Point.FENCE_CHECKED.value, *2 * (Point.PREPARED.value,)), _FENCED),
    ((Point.PRE_COMMITTED.value, Point.FENCE_CHECKED.value, Point.PREPARED.value), ("",)),
    (
        (Point.DECIDED.value, *2 * (Point.SEALED.value,), Point.SINK_COMMITTED.value),
        ("", *_FENCED, Point.EPOCH_STARTED.value, Point.PREPARED.value),
    ),
    (
        (Point.PRE_COMMITTED.value, Point.PREPARED.value, Point.DECIDED.value),
        (Point.GENERATION_CLAIMED.value, Point.PREDECESSOR_SEALED.value),
    ),
)
"""Where a driver stops, and where its successor does, while the first one wakes up: it decides an
epoch that is void; its epoch has been run again; it is committing; it may still decide. What is
left over, stops at random, is one kind more."""
_OFTEN = ("driver", "pause", "connection")
"""Twice in each round."""
_WRONG_S = (-7 * 86400, -7200, -90, -5, 5, 90, 3000)
"""How wrong a clock is. A broker refuses rows from more than an hour ahead."""
_LINES = (("cut", "cut a request", "cut a reply"), ("delay", "drop"), (HOLD,))


@dataclass(frozen=True)
class Step:
    """One fault. `pause_s` is the calm before it, `aim_s` the time after the next epoch's plan,
    `lasts_s` its length. `how` is a variant, or "". `amount` is a number of its own: the nth reply,
    the milliseconds of a delay, the seconds of a clock. `chance` picks among what is there. `at`
    and `then` are the failpoints at which a driver and its successor die, or stop, or ""."""

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
        lasting = f" for {self.lasts_s:.1f} s"
        harms = {"delay": f"delay by {self.amount} ms", HOLD: HOLD, "drop": "drop replies"}
        line = harms[self.how] + lasting if self.how in harms else self.how
        details = {
            "driver": f" by {self.how}" * bool(self.how)
            + "".join(f", then at {point}" for point in (self.at, self.then) if point),
            "broker": lasting,
            "database": lasting,
            "connection": f": {line}",
            "pause": f" at {self.at}, {self.how}{f' stopped at {self.then}' * bool(self.then)}"
            if self.at
            else f"{lasting}{', ' * bool(self.how)}{self.how}",
            "disk-full": lasting,
            "clock": f": {self.amount:+} s, then {self.lasts_s:.0f} s {self.how}",
        }
        return f"{self.fault}{details.get(self.fault, '')}"


def steps(seed: int, faults: Sequence[str], failpoints: Sequence[str]) -> Iterator[Step]:
    """Yield faults without end: rounds with each fault of `faults` in random order. `failpoints`
    are those that a driver or a worker of the workload can reach. The variants of a fault come by
    turns too: each kind of death, of stop and of broken line once, before one comes again."""
    chance = random.Random(f"seamark verify {seed}")
    kinds = [[p for p in failpoints if p in kind] for kind in _KINDS]
    turns: dict[str, Iterator[Any]] = {
        "driver": _by_turns(chance, [kind for kind in [*kinds, [""]] if kind]),
        "pause": _by_turns(chance, [*_STOPS, None]),
        "connection": _by_turns(chance, _LINES),
    }
    number = 0
    while faults:
        round_ = [fault for fault in faults for _ in range(1 + (fault in _OFTEN))]
        chance.shuffle(round_)
        for fault in round_:
            number += 1
            kind = next(turns[fault]) if fault in turns else None
            how, amount, at, then = _variant(chance, fault, kind, failpoints)
            yield Step(
                number, fault, chance.uniform(0, 3), chance.uniform(0, 0.35),
                chance.uniform(0.5, 6), how, amount, chance.random(), at, then,
            )  # fmt: skip


def _variant(
    chance: random.Random, fault: str, kind: Any, failpoints: Sequence[str]
) -> tuple[str, int, str, str]:
    """Return how, amount, at and then of a fault, of the kind whose turn it is."""
    if fault == "driver":
        at, then = _deaths(chance, kind, failpoints)
        return "" if at else chance.choice(["", SIGTERM]), 0, at, then
    if fault == "connection":
        how = chance.choice(kind)
        return how, chance.randint(*((1, 8) if how.startswith("cut") else (50, 400))), "", ""
    if fault == "clock":
        return chance.choice(["less", "more"]), chance.choice(_WRONG_S), "", ""
    if fault == "pause" and kind:
        return SECOND, 0, _nth(chance, chance.choice(kind[0])), chance.choice(kind[1])
    return SECOND if fault == "pause" and chance.random() < 0.5 else "", 0, "", ""


def _by_turns(chance: random.Random, all_: Sequence[T]) -> Iterator[T]:
    while True:
        yield from chance.sample(all_, len(all_))


def _nth(chance: random.Random, point: str) -> str:
    return f"{point}:{1 if point in _RECOVERY else chance.choice([1, 1, 2, 3])}"


def _deaths(
    chance: random.Random, kind: Sequence[str], failpoints: Sequence[str]
) -> tuple[str, str]:
    """Return where a driver dies, and where its successor does, half the time. A recovery has
    something to do: it follows a death in an epoch."""
    point = chance.choice(kind)
    epoch = [p for p in failpoints if p not in _RECOVERY]
    if point in _RECOVERY and epoch:
        first = Point.DECIDED.value if point == Point.RECOVERY_COMMITTED.value else None
        return _nth(chance, first or chance.choice(epoch)), _nth(chance, point)
    if not point or chance.random() < 0.5:
        return point and _nth(chance, point), ""
    return _nth(chance, point), f"{chance.choice(epoch or failpoints)}:1"


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
