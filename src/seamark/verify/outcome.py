"""What a verification found: plain values, for the last lines on the terminal and the report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seamark.verify.epochs import Epoch
from seamark.verify.history import Anomaly, count_rows


@dataclass(frozen=True)
class Event:
    """Something on the time-line. `kind` is ``fault``, ``recovery`` or ``driver``; times are
    seconds since 1970."""

    kind: str
    name: str
    begun_s: float
    ended_s: float
    detail: str = ""


@dataclass
class Outcome:
    """One verification. `command` repeats it; `anomalies` are by the stream of rows. `first_s` is
    the time of the first finding."""

    workload: str
    seed: int
    command: str
    begun_s: float
    ended_s: float = 0.0
    first_s: float | None = None
    faults: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    sinks: Sequence[str] = ()
    not_read: Mapping[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    anomalies: dict[str, list[Anomaly]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> list[Anomaly]:
        """The anomalies of all streams."""
        return [anomaly for anomalies in self.anomalies.values() for anomaly in anomalies]

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.found and not self.failures

    @property
    def rows_by_kind(self) -> dict[str, int]:
        """How many rows have each kind of anomaly, zeros too."""
        return count_rows(self.found)

    def verdict(self) -> str:
        """Return one line."""
        faults = sum(event.kind == "fault" for event in self.events)
        over = (
            f"{self.counts['rows']:,} rows, {len(self.epochs)} epochs, {faults} faults, "
            f"{self.counts['driver starts']} driver starts, seed {self.seed}"
        )
        if self.good:
            return f"GOOD: no anomaly in {over}"
        kinds = [f"{count:,} {kind}" for kind, count in self.rows_by_kind.items() if count]
        kinds += [f"{len(self.failures)} failures of the job"] if self.failures else []
        after = f" (the first after {self.first_s - self.begun_s:.0f} s)" if self.first_s else ""
        return f"BAD: {', '.join(kinds)}{after} in {over}"
