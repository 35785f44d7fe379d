"""Fewer tasks for a short epoch, and for `target_file_size=` of a sink of files.

Each task of an epoch has transactions, or files, of its own. Of a short epoch they are most of the
work: 64 tasks that write to a topic of 64 partitions leave 4,096 markers in it. `Gathering` takes
from the last epoch how many tasks the next one needs; `FewerTasks` runs its Spark job with so many,
each of which reads the rows of several of the plan's partitions one after another (`coalesce`): no
row is shuffled, or written twice. All sinks of the stream are written by these tasks.

The number is no part of an epoch's identity. A repeated epoch may be divided otherwise: its
attempt has names of its own, and the earlier one is aborted whole. So nothing is stored, and a
run's first epoch has all its tasks.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from seamark.checkpoint.task_reports import TaskReport
from seamark.contracts.sink import FileSizeSink
from seamark.spark.java_calls import java_list
from seamark.spark.plans import name_of, scala_class
from seamark.spark.state_backend import ROCKSDB_PROVIDER

log = logging.getLogger(__name__)

_SQL = "org.apache.spark.sql.execution"
LONGEST_S = 1.0
"""How long a gathered task may take: gathering must not cost an epoch more than that. The tasks'
work below the sink, an aggregation's too, is gathered with it. Tasks that `target_file_size=` has
gathered may take longer where no core is left for more."""


class Gathering:
    """The number of tasks for each epoch of one run. `cores` is how many tasks run at once;
    `apart`: no task may compute partitions of two operators (`must_be_apart`)."""

    def __init__(self, sinks: Mapping[str, object], cores: int, *, apart: bool = False) -> None:
        self._apart = apart
        self._sizes = {
            uid: int(sink.target_file_size)
            for uid, sink in sinks.items()
            if isinstance(sink, FileSizeSink) and sink.target_file_size
        }
        self._cores = cores
        self.tasks = 0
        """The most tasks for the next epoch; 0: as many as there are."""

    def after_epoch(self, tasks: Sequence[TaskReport]) -> None:
        """Set the number for the next epoch, by the reports of the last one."""
        if not tasks or self._apart:
            return
        busy_s = sum(task.ended_at - task.started_at for task in tasks)
        if not self._sizes:
            # A multiple of the cores, or the last task would run alone while the others are idle.
            self.tasks = self._cores * max(math.ceil(busy_s / LONGEST_S / self._cores), 1)
            return
        written = {
            uid: sum(task.sinks[uid].file_bytes for task in tasks if uid in task.sinks)
            for uid in self._sizes
        }
        if any(written.values()):  # an epoch without rows tells nothing of files
            files = max(math.ceil(written[uid] / size) for uid, size in self._sizes.items())
            self.tasks = max(files, min(math.ceil(busy_s / LONGEST_S), self._cores), 1)


def must_be_apart(operators: Iterable[str], provider: str) -> bool:
    """Whether a task may not compute partitions of several of these operators: an aggregation reads
    its state before it writes, and for the rest of the task Spark opens each other operator's state
    as that one's. RocksDB refuses that."""
    kinds = {*operators}
    return "Aggregate" in kinds and len(kinds) > 1 and provider == ROCKSDB_PROVIDER


@dataclass(frozen=True)
class FewerTasks:
    """An epoch's tasks, at most so many; 0: as many as there are. `stream` is the Spark query that
    has planned the epoch."""

    stream: Any
    tasks: int

    def of(self, rdd: Any) -> Any:
        """Return an RDD for these tasks. `rdd` is the planned one, whose plan ends in the
        pre-commit. Called in the thread of `foreachBatch`."""
        if not self.tasks or rdd.getNumPartitions() <= self.tasks:
            return rdd
        plan = self.stream.lastExecution().executedPlan()
        try:
            if name_of(plan) == "AdaptiveSparkPlanExec":
                plan = plan.executedPlan()  # the final one: `rdd` is planned, its stages have run
            if name_of(plan) == "ResultQueryStageExec":  # around it
                plan = plan.plan()
            if name_of(plan) != "MapInArrowExec":
                log.debug("an epoch's tasks are not gathered: its plan ends in %s", name_of(plan))
                return rdd
            fewer = scala_class(plan, f"{_SQL}.CoalesceExec")(self.tasks, plan.child())
            as_seq = scala_class(plan, "org.apache.spark.api.python.PythonUtils").toSeq
            # All nodes below stay the same objects: Spark reads the epoch's figures from them.
            return plan.withNewChildren(as_seq(java_list(plan, [fewer]))).execute()
        except (Py4JError, TypeError) as error:  # nothing has run yet, and more files do no harm
            log.warning("this version of Spark gathers no tasks: %s", error)
            return rdd
