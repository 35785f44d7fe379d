"""What a restore would do, for people and programs to read before it is done; pure.

`restore/planner.py` makes it, `Job.restore_plan` and ``seamark run -s PATH --plan`` return it, and
a restore that has `problems` in its plan is refused with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Action(Enum):
    """What becomes of a part. `MAPPED`: it goes on from what is restored; `NEW`: it begins with
    nothing; `DROPPED`: the program has no such part, and what it had is left out."""

    MAPPED = "mapped"
    NEW = "new"
    DROPPED = "dropped"


class ClaimMode(Enum):
    """Whose the savepoint is after the restore: its owner's, as before, or the new job's, which
    deletes it when its own first checkpoint is complete."""

    NO_CLAIM = "no-claim"
    CLAIM = "claim"


@dataclass(frozen=True)
class OperatorPlan:
    """A stateful operator. `named`: it has a uid, and is not called by its number; `type` is
    Spark's name of what it is; `rows` and `bytes` of its state are None where nothing says."""

    uid: str
    named: bool
    type: str
    action: Action
    repartitioned: bool = False
    """Its state is spread over another number of partitions."""
    converted: bool = False
    """Its state goes onto another state backend."""
    evolved: bool = False
    """Its state has another schema in the program, which Spark can go on with."""
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class SourcePlan:
    """A source; `offset` is where it goes on, or what is dropped (None: nothing was read)."""

    uid: str
    named: bool
    action: Action
    offset: Any = None


@dataclass(frozen=True)
class SinkPlan:
    """A sink; `action` is None where nothing says which sinks the first job had.

    `commit`: transactions that are decided, and committed by the restored job; `abort`: those of
    the first job that are prepared and not decided, which a restore leaves alone: that job aborts
    them when it starts again, or their system does in time.
    """

    uid: str
    action: Action | None
    commit: int = 0
    abort: int = 0


@dataclass(frozen=True)
class Side:
    """One side of a restore; `directory` is of the new job, and the times (milliseconds since
    1970), the id and the epoch are of the first one."""

    name: str
    state_backend: str
    partitions: int
    job_id: str | None = None
    epoch: int | None = None
    created_ms: int | None = None
    watermark_ms: int | None = None
    directory: str | None = None


@dataclass(frozen=True)
class RestorePlan:
    """What a restore of `path` into a program's job would do.

    `kind` is ``savepoint`` or ``checkpoint``, `format` of a savepoint ``canonical`` or ``native``;
    `problems` are what would stop it, `warnings` what is worth a look. With `restored` it is done
    already, from this very path: the job goes on by itself, and nothing else is said.
    """

    path: str
    kind: str
    format: str | None
    source: Side
    target: Side
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    restored: bool = False
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
        """Return it in the fields of ``seamark run --plan --json`` (docs/savepoints.md)."""
        source, target = self.source, self.target
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
            "operators": [_plain(operator) for operator in self.operators],
            "sources": [_plain(source) for source in self.sources],
            "sinks": [_plain(sink) for sink in self.sinks],
            "warnings": list(self.warnings),
            "problems": list(self.problems),
        }


def _plain(part: OperatorPlan | SourcePlan | SinkPlan) -> dict[str, Any]:
    found: Mapping[str, Any] = asdict(part)
    return {k: v.value if isinstance(v, Action) else v for k, v in found.items()}
