"""The origin of a restore, as seen by one program's job: a savepoint (`from_savepoint.py`) or a
retained checkpoint (`from_checkpoint.py`).

`planner.py` makes the restore plan of an `Origin`, `write.py` the new job. Neither knows the kind
of its origin. A restore writes nothing there but a claim.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.declarations import SPARK_DIRECTORY
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.jobs.checkpoint_history import open_store
from seamark.model.errors import SeamarkError
from seamark.savepoints.record import Operator, Source
from seamark.savepoints.restore.location import NewOperator
from seamark.savepoints.restore.plan import Side, SinkPlan
from seamark.savepoints.state.planned import PlannedState, StateMetadata
from seamark.spark.hadoop_files import open_files

Waiting = Mapping[int, Callable[[], Mapping[str, SinkEpoch]]]
"""By epoch, a function that reads its transactions by the sink's uid: for each epoch from the first
with transactions to the origin's."""


@dataclass(frozen=True)
class Parts:
    """An origin's operators and sources, with their uids in the program, each with Spark's number
    of it there. None: the program has no such part, so it is dropped."""

    operators: Sequence[tuple[Operator, int | None]]
    sources: Sequence[tuple[Source, int | None]]
    new_operators: Sequence[NewOperator] = ()
    """The program's operators without state in the origin."""

    @property
    def numbers(self) -> dict[int, int]:
        """New numbers by old ones, of the operators that are not dropped."""
        return {o.index: number for o, number in self.operators if number is not None}


class Origin(ABC):
    """An origin, as far as its new job needs to know it."""

    kind: str
    """``savepoint`` or ``checkpoint``."""
    name: str
    """For the log."""
    format: str | None = None
    """Of a savepoint: ``canonical`` or ``native``."""
    failure: SeamarkError | None = None
    """Names each damaged file. `problems` yields them too, and `parts` must not be planned."""
    state: Side
    """The origin's job, epoch, backend and partitions."""
    job_id: str | None
    epoch: int
    offsets_set = False
    """Whether its offsets are not those of its epoch, but set by hand."""
    watermark_ms: int
    settings: Mapping[str, str]
    """Spark's settings of the new query, as its offset log will hold them."""
    values_by: Mapping[str, str]
    """Those by which its job computed values, as far as they are known."""

    @abstractmethod
    def parts(self, wanted: PlannedState | None) -> Parts:
        """Find the parts in the program. `wanted` is None if Spark has not planned it."""

    @abstractmethod
    def problems(self) -> Iterator[str]:
        """Yield each problem that stops the restore. Spark's plan tells misfits of state."""

    def misfits(self, parts: Parts, wanted: PlannedState) -> Iterator[str]:
        """Yield why the operators as a whole do not fit; Spark is then asked about none of them."""
        yield from ()

    @abstractmethod
    def metadata(self) -> StateMetadata:
        """Return the metadata of the state."""

    def bytes_of(self, operator: Operator) -> int | None:
        """Return the bytes of an operator's state, None if unknown."""
        return None

    @abstractmethod
    def sinks(self) -> Iterator[SinkPlan]:
        """Yield the plan of each sink."""

    @abstractmethod
    def warnings(self) -> Iterator[str]:
        """Yield all that is worth a look, except parts without a uid."""

    # --- called by `write.py`, in this order

    @abstractmethod
    def decisions(self) -> dict[str, Any]:
        """Return the entries of ``restoring.json`` specific to this kind of origin."""

    def fixed(self, parts: Parts) -> dict[str, Any]:
        """Return further entries, which must be the same when the restore is repeated."""
        return {}

    @abstractmethod
    def claim(self, job_id: str, directory: str) -> None:
        """Claim the origin if the new job asks for it; raises RestoreError if another was first."""

    @abstractmethod
    def copy(self, target: CheckpointStore, decided: Mapping[str, Any], parts: Parts) -> None:
        """Make the new job's Spark checkpoint location, and the rows kept there for its sinks.
        `decided` is the content of ``restoring.json``. After a kill -9 it is called again."""

    @abstractmethod
    def waiting(self, decided: Mapping[str, Any]) -> Waiting:
        """Return functions that read the transactions for the new job to commit."""


def open_job(
    spark: SparkSession, uri: str, spark_directory: str = SPARK_DIRECTORY
) -> CheckpointStore:
    """Open a job's directory without making it. `spark_directory` is the path of a new job's Spark
    checkpoint location below it."""
    return open_store(lambda at: open_files(spark, at, make=False), uri, spark_directory)
