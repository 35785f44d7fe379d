"""The preview of a restore, for people and programs; pure.

`restore/planner.py` makes it, `Job.restore_plan` and ``seamark run -s PATH --plan`` return it. A
restore with `problems` in its plan is refused.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Action(Enum):
    """What happens to a part. `MAPPED`: it goes on from the restored state; `NEW`: it begins with
    nothing; `DROPPED`: the program has no such part, and its state is left out."""

    MAPPED = "mapped"
    NEW = "new"
    DROPPED = "dropped"


class ClaimMode(Enum):
    """The savepoint's owner after the restore: the same as before (`NO_CLAIM`), or the new job
    (`CLAIM`). The new job deletes it once its own first checkpoint is complete."""

    NO_CLAIM = "no-claim"
    CLAIM = "claim"


@dataclass(frozen=True)
class OperatorPlan:
    """A stateful operator. `named`: it is called by its uid, not by its number. `type` is Spark's
    name of its kind. `rows` and `bytes` of its state are None if unknown."""

    uid: str
    named: bool
    type: str
    action: Action
    repartitioned: bool = False
    """Its state is spread over another number of partitions."""
    converted: bool = False
    """Its state goes onto another state backend."""
    evolved: bool = False
    """Its state has another schema in the program, and Spark accepts the change."""
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class SourcePlan:
    """A source; `offset` is where it goes on, or the one dropped (None: nothing was read)."""

    uid: str
    named: bool
    action: Action
    offset: Any = None


@dataclass(frozen=True)
class SinkPlan:
    """A sink; `action` is None if the first job's sinks are unknown.

    `commit`: decided transactions, committed by the restored job. `abort`: the first job's
    prepared, undecided transactions. A restore leaves them alone: the first job aborts them at its
    next start, or their system does in time.
    """

    uid: str
    action: Action | None
    commit: int = 0
    abort: int = 0


@dataclass(frozen=True)
class Side:
    """One side of a restore. `directory` belongs to the new job. The times (milliseconds since
    1970), the id and the epoch belong to the first job."""

    name: str
    state_backend: str
    partitions: int
    job_id: str | None = None
    epoch: int | None = None
    created_ms: int | None = None
    watermark_ms: int | None = None
    directory: str | None = None


@dataclass(frozen=True)
class Superseded:
    """The lineage of the job that the restore ends: its job id, directory, and last decided epoch.

    `again`: the first and the last epoch whose rows are written again, because the origin is older;
    with an origin of an earlier lineage, of all lineages from that one on. None if there are none,
    or if the origin is of another job. `rows`: how many, over all sinks; None if the ledger does
    not tell. `offsets_set`: the origin begins at other offsets, so neither says all.
    """

    job_id: str
    directory: str
    epoch: int
    again: tuple[int, int] | None
    rows: int | None
    offsets_set: bool = False

    def warning(self) -> str:
        """Return what it means, in a sentence."""
        said = f"the job's lineage so far, {self.directory}, ends at epoch {self.epoch}"
        if self.again is None:
            by_hand = (
                "; the savepoint's offsets were set by hand: rows before the job's newest offsets "
                "are written again"
            )
            return (
                f"{said}; it is kept, and never written again{by_hand if self.offsets_set else ''}"
            )
        rows = "" if self.rows is None else f" ({self.rows:,} rows)"
        return (
            f"{said}, and the restored epoch is older: the sinks hold epochs {self.again[0]} to "
            f"{self.again[1]} already{rows}, and their rows are written again"
        )


@dataclass(frozen=True)
class RestorePlan:
    """The restore of `path` into a program's job, not yet done.

    `kind` is ``savepoint`` or ``checkpoint``, `format` of a savepoint ``canonical`` or ``native``.
    `problems` would stop the restore, `warnings` are worth a look. `restored`: the restore from
    this very path is done already; the job goes on by itself; no parts are listed. `supersedes`:
    None for a new job.
    """

    path: str
    kind: str
    format: str | None
    source: Side
    target: Side
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    restored: bool = False
    supersedes: Superseded | None = None
    operators: tuple[OperatorPlan, ...] = ()
    sources: tuple[SourcePlan, ...] = ()
    sinks: tuple[SinkPlan, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def restorable(self) -> bool:
        """Whether the restore would be done."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the fields of ``seamark run --plan --json`` (docs/savepoints.md)."""
        source, target, old = self.source, self.target, self.supersedes
        return {
            "path": self.path,
            "kind": self.kind,
            "format": self.format,
            "from": {
                "jid": source.job_id,
                "name": source.name,
                "epoch": source.epoch,
                "created": source.created_ms,
                "state-backend": source.state_backend,
                "partitions": source.partitions,
                "watermark": source.watermark_ms,
            },
            "to": {
                "name": target.name,
                "directory": target.directory,
                "state-backend": target.state_backend,
                "partitions": target.partitions,
            },
            "claim-mode": self.claim_mode.value,
            "restorable": self.restorable,
            "restored": self.restored,
            "supersedes": old
            and {
                "jid": old.job_id,
                "directory": old.directory,
                "epoch": old.epoch,
                "epochs-again": old.again and list(old.again),
                "rows-again": old.rows,
            },
            "operators": [_plain(operator) for operator in self.operators],
            "sources": [_plain(source) for source in self.sources],
            "sinks": [_plain(sink) for sink in self.sinks],
            "warnings": list(self.warnings),
            "problems": list(self.problems),
        }


def _plain(part: OperatorPlan | SourcePlan | SinkPlan) -> dict[str, Any]:
    fields: Mapping[str, Any] = asdict(part)
    return {k: v.value if isinstance(v, Action) else v for k, v in fields.items()}
