"""What a restore begins from, as one program's job sees it: a savepoint (`from_savepoint.py`) or a
retained checkpoint (`from_checkpoint.py`).

`planner.py` makes the restore plan of an `Origin`, `write.py` the new job. Neither knows which of
the two it is. Of an origin nothing is changed, but for the note that a savepoint is claimed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.store import CheckpointStore, SinkEpoch
from seamark.model.errors import SeamarkError
from seamark.runtime.hadoop_files import open_files
from seamark.savepoints.record import Operator, Source
from seamark.savepoints.restore.location import NewOperator
from seamark.savepoints.restore.plan import Side, SinkPlan
from seamark.savepoints.state.planned import PlannedState, StateMetadata

Waiting = Mapping[int, Callable[[], Mapping[str, SinkEpoch]]]
"""What reads the transactions of an epoch, by the sink's uid: for each epoch from the first that
has some to the origin's."""


@dataclass(frozen=True)
class Parts:
    """An origin's operators and sources, called as in the program, each with Spark's number of it
    there; None: the program has no such part, so it is dropped."""

    operators: Sequence[tuple[Operator, int | None]]
    sources: Sequence[tuple[Source, int | None]]
    new_operators: Sequence[NewOperator] = ()
    """The program's that the origin has nothing of."""

    @property
    def numbers(self) -> dict[int, int]:
        """Of the operators that are not dropped: the new number by the old one."""
        return {o.index: number for o, number in self.operators if number is not None}


class Origin(ABC):
    """What is known of an origin, for the job that is to go on from it."""

    kind: str
    """``savepoint`` or ``checkpoint``."""
    name: str
    """For the log."""
    format: str | None = None
    """Of a savepoint: ``canonical`` or ``native``."""
    failure: SeamarkError | None = None
    """Names each damaged file; `problems` has them too, and `parts` is not to be planned."""
    state: Side
    """Whose it is, and of which epoch."""
    job_id: str | None
    epoch: int
    watermark_ms: int
    settings: Mapping[str, str]
    """Spark's of the new query, as its offset log will hold them."""

    @abstractmethod
    def parts(self, wanted: PlannedState | None) -> Parts:
        """Find the parts in the program. `wanted` is None if Spark has not planned it."""

    @abstractmethod
    def problems(self) -> Iterator[str]:
        """Yield what stops the restore, but for the state that Spark plans."""

    def misfits(self, parts: Parts, wanted: PlannedState) -> Iterator[str]:
        """Yield which operators stop the restore as a whole; then Spark is asked of none."""
        yield from ()

    @abstractmethod
    def metadata(self) -> StateMetadata:
        """Return the metadata of the state."""

    def bytes_of(self, operator: Operator) -> int | None:
        """Return the bytes of an operator's state, None where nothing says."""
        return None

    @abstractmethod
    def sinks(self) -> Iterator[SinkPlan]:
        """Yield what becomes of each sink."""

    @abstractmethod
    def warnings(self) -> Iterator[str]:
        """Yield what is worth a look, but for parts without a uid."""

    # --- what `write.py` asks, in this order

    @abstractmethod
    def decisions(self) -> dict[str, Any]:
        """Return what only this origin puts into ``restoring.json``."""

    def fixed(self) -> dict[str, Any]:
        """Return those of them that a restore which is done again must have too."""
        return {}

    @abstractmethod
    def claim(self, job_id: str, directory: str) -> None:
        """Claim it for the new job, if that is wanted; raises RestoreError if another job was
        first."""

    @abstractmethod
    def copy(self, target: CheckpointStore, decided: Mapping[str, Any], parts: Parts) -> None:
        """Make the new job's Spark checkpoint location, and what its sinks keep. `decided` is what
        ``restoring.json`` holds. After a kill -9 it is called again with the same arguments."""

    @abstractmethod
    def waiting(self, decided: Mapping[str, Any]) -> Waiting:
        """Return what reads the transactions that the new job has to commit."""


def open_job(spark: SparkSession, uri: str) -> CheckpointStore:
    """Return a job's directory, which is not made."""
    return CheckpointStore(
        open_files(spark, uri, make=False), open_files(spark, f"{uri}/spark", make=False)
    )
