"""The results of an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Fault(Enum):
    """What is wrong with some rows. The values are part of ``seamark audit --json``."""

    MISSING = "missing"  # written by the epoch, and not there
    TORN = "torn"  # a part of an epoch's transactions is there, another part is not at all
    DOUBLED = "doubled"  # there once more than it was written
    CHANGED = "changed"  # another row is in its place
    OUTDATED = "outdated"  # an older row of its key is in its place
    MOVED = "moved"  # there, but in another epoch or target partition
    SWAPPED = "swapped"  # two rows are each in the other one's epoch or target partition
    FOREIGN = "foreign"  # there, and written by no epoch of the job
    DIFFERENT = "different"  # several faults in one place, which cannot be told apart
    SINKS_DIFFER = "sinks differ"  # sinks that are given the same rows were given others


class Comparison(Enum):
    """How far a target tells the writer of a row."""

    TRANSACTION = "by transaction"
    EPOCH = "by epoch"
    KEY = "by key"
    TOTAL = "in total"
    NONE = "not compared"


@dataclass(frozen=True)
class FoundRow:
    """A row found at the target, or, with `place` "", one that should be there."""

    values: Mapping[str, Any]
    place: str = ""
    position: int = -1

    def to_json(self) -> dict[str, Any]:
        """Return it for people and programs."""
        values = {name: _plain(value) for name, value in self.values.items()}
        return {"row": values, "place": self.place, "position": self.position}

    def __str__(self) -> str:
        row = ", ".join(f"{name}={_short(value)}" for name, value in self.values.items())
        at = f"{self.place} {self.position}" if self.position >= 0 else self.place
        return f"{row} ({at})" if at else row


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _short(value: Any) -> str:
    text = str(_plain(value))
    return text if len(text) <= 60 else f"{text[:57]}…"


@dataclass(frozen=True)
class Finding:
    """A fault of `rows` rows. `epoch` is -1 where the target does not tell; `place` is the cell, as
    people call it, `examples` some of the rows, `to` the cell of a row moved or swapped."""

    fault: Fault
    sink: str
    epoch: int
    rows: int
    place: str = ""
    examples: Sequence[FoundRow] = ()
    to: str = ""
    hash: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        examples = [row.to_json() for row in self.examples]
        return vars(self) | {"fault": self.fault.value, "examples": examples}

    def __str__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        where = f" in {self.place}" if self.place else ""
        to = f", now in {self.to}" if self.to else ""
        shown = "; ".join(map(str, self.examples))
        if not shown and self.hash:
            shown = f"hash {self.hash}"
        return f"{self.fault.value}: {rows}{where}{to}{f': {shown}' if shown else ''}"


@dataclass
class SinkResult:
    """One sink's part of an audit. `notes` say what was not compared, and why."""

    uid: str
    description: str
    comparison: Comparison = Comparison.NONE
    expected_rows: int = 0
    found_rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it for people and programs."""
        return {
            "sink": self.uid,
            "description": self.description,
            "compared": self.comparison.value,
            "expected-rows": self.expected_rows,
            "found-rows": self.found_rows,
            "findings": [{**one.to_json(), "text": str(one)} for one in self.findings],
            "notes": self.notes,
        }
