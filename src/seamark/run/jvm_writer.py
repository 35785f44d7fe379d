"""Real time without Python: the tasks' rows go from Spark's JVM to Kafka.

Where neither a step of the plan nor a sink needs Python, the query has no `mapInArrow` at its end.
The writers of its sink (``spark/java/KafkaTasks.java``) take the rows and give the same reports,
as JSON. docs/adr/0026-rows-that-stay-in-the-jvm.md has the reasons.
"""

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.types import StructType

from seamark.checkpoint.row_hash import RowSums
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.jvm_writer import JvmWrittenSink
from seamark.model.errors import PreCommitError
from seamark.run.job_plan import JobPlan
from seamark.run.pre_commit import ORDER, of_epoch
from seamark.run.task_attempt import EpochTasks
from seamark.spark.java.compiled import class_loader, writers_jar

log = logging.getLogger(__name__)

PYTHON_STEPS = frozenset(
    (
        "ArrowEvalPythonExec",
        "BatchEvalPythonExec",
        "MapInArrowExec",
        "MapInPandasExec",
        "PythonMapInArrowExec",
    )
)
_TYPES = {
    "key": "binary",
    "value": "binary",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns that the Java writer takes and hashes."""
_lock = threading.Lock()
_sent_to: set[str] = set()
"""Applications whose executors have the jar."""


class JvmWriter:
    """The writers of one run in Spark's JVMs. `factory` makes them, for ``SeamarkEpochSink``."""

    def __init__(self, factory: Any, sinks: Mapping[str, Any]) -> None:
        self.factory = factory
        self._sinks = sinks

    def reports_of(self, epoch: int, rows: Iterable[bytes]) -> list[TaskReport]:
        """As `pre_commit.reports_of`."""
        return of_epoch(epoch, [(told["epoch"], self._report(told)) for told in map(_load, rows)])

    def _report(self, told: dict[str, Any]) -> TaskReport:
        parts = {uid: self._part(uid, part) for uid, part in told["sinks"].items()}
        times = told["started_at"], told["ended_at"]
        return TaskReport(told["partition"], told["attempt"], *times, parts)

    def _part(self, uid: str, told: dict[str, Any]) -> SinkReport:
        targets = {name: RowSums.of(*sums) for name, sums in told.pop("targets").items()}
        committables: tuple[bytes, ...] = ()
        if (transaction := told.pop("transaction", None)) is not None:
            sink = self._sinks[uid]
            committables = (sink.dump(sink.jvm_committable(transaction)),)
        return SinkReport(committables=committables, targets=targets, **told)


def _load(row: bytes) -> Any:
    return json.loads(bytes(row))


def jvm_writer(plan: JobPlan, tasks: EpochTasks) -> JvmWriter | None:
    """Return the writer for a job in real time; None if a row needs Python, or if this JVM has
    Kafka's client under another name."""
    described = _described(plan, tasks)
    if described is None:
        return None
    error = f"{PreCommitError.__module__}.{PreCommitError.__name__}"
    text = json.dumps({"order": ORDER, "error": error, "sinks": described})
    spark = plan.spark
    try:
        jar = writers_jar(spark)
        with _lock:
            if (application := spark.sparkContext.applicationId) not in _sent_to:
                spark.sparkContext._jsc.addJar(str(jar))
                _sent_to.add(application)
        made = class_loader(spark._jvm, jar).loadClass("seamark.KafkaTasks").getConstructors()[0]
        arguments = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 1)
        arguments[0] = text
        factory = made.newInstance(arguments)
    except Py4JError as failure:
        log.warning("rows go through Python, some hundred a second and task: %s", failure)
        return None
    log.info("rows stay in the JVM on their way to %s", ", ".join(tasks.layout.uids))
    return JvmWriter(factory, {uid: tasks.sinks[uid] for uid in tasks.layout.uids})


def _described(plan: JobPlan, tasks: EpochTasks) -> list[Mapping[str, Any]] | None:
    """Return the sinks, in the order of the stream's columns; None if one of them, or a step, needs
    Python."""
    if tasks.dead_letters or tasks.processes:
        return None
    if any(kind in PYTHON_STEPS for _, kind in plan.query.steps):
        return None
    described: list[Mapping[str, Any]] = []
    for number, uid in enumerate(tasks.layout.uids):
        sink = tasks.sinks[uid]
        description = None
        if isinstance(sink, JvmWrittenSink):
            description = sink.jvm_writer(tasks.job_id, uid, tasks.generation)
        columns = _columns(plan.stream.schema, tasks.layout.columns, number)
        if description is None or columns is None:
            return None
        described.append({**description, "columns": columns})
    return described


def _columns(schema: StructType, lone: Sequence[str], number: int) -> list[str] | None:
    """Return the names of a sink's columns; None if one is of another type than a record's part."""
    fields = schema.fields
    if not lone:
        struct = fields[number].dataType
        assert isinstance(struct, StructType)
        fields = struct.fields
    names = [*lone] if lone else [field.name for field in fields]
    types = {n: f.dataType.simpleString() for n, f in zip(names, fields, strict=True)}
    return names if all(_TYPES.get(name) == kind for name, kind in types.items()) else None
