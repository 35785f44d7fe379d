"""A retained checkpoint as the origin of a restore.

It is copied as it is. So the program must keep Spark's numbers of its operators and sources, its
state backend and its number of partitions. The checkpoint does not hold uids. The job's checkpoint
statistics do, if there are any: they show when two parts have swapped places.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.channel_state import NO_CHANNEL_STATE
from seamark.checkpoint.drained import before
from seamark.checkpoint.inspection import committables_of, standing_attempts
from seamark.checkpoint.lineages import job_directory
from seamark.checkpoint.sink_epoch import PreparedSinks, SinkEpoch
from seamark.checkpoint.spark_files import read_log, read_offsets
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.model.errors import CorruptRecordError
from seamark.run.kafka_topics import ask_topic_ids, made_again, offsets_by_uid, unfit_offsets
from seamark.run.waiting_rows import unfit_rows
from seamark.savepoints.record import Source
from seamark.savepoints.restore.checkpoint import (
    copy_channel_state,
    copy_checkpoint,
    find_checkpoint,
    find_waiting,
    read_waiting,
)
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.restore.origin import Origin, Parts, Waiting
from seamark.savepoints.restore.plan import ClaimMode, Side, SinkPlan
from seamark.savepoints.state.files import describe_operators
from seamark.savepoints.state.layout import StateLayout
from seamark.savepoints.state.planned import PlannedState, StateMetadata
from seamark.savepoints.state.rows import StateClasses
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.state_backend import PARTITIONS, PROVIDER, backend_of


class CheckpointOrigin(Origin):
    """The whole checkpoint at `path`. `begun`: the decisions of an interrupted restore of it.
    Raises RestoreError if there is no checkpoint, DamagedCheckpointError."""

    kind = "checkpoint"

    def __init__(
        self, spark: SparkSession, path: str, job: NewJob, begun: Mapping[str, Any] | None
    ) -> None:
        source, inspection = find_checkpoint(spark, path, begun["epoch"] if begun else None)
        self._spark, self._path, self._job = spark, path, job
        self._source, self._found, self.epoch = source, inspection, inspection.epoch
        self._waiting = find_waiting(source, inspection)
        files, uids = source.spark_files, StatisticsStore(source.files).uids(self.epoch)
        metadata = read_log(files, f"offsets/{self.epoch}")[0]
        self._offsets = job.program.uids.lines_of(read_offsets(files, self.epoch))
        commit = read_log(files, f"commits/{self.epoch}")[0]
        self.settings, self.values_by = metadata["conf"], source.read_known().settings
        self.watermark_ms = before(int(commit.get("nextBatchWatermarkMs", 0)))
        # Only Spark reads or writes these rows, so the format version does not matter.
        layout = StateLayout(
            spark, StateClasses.of(spark), files.uri, files.uri, self.settings, 1
        )  # fmt: skip
        named = OperatorUids(operators=dict(enumerate(uids.get("operator", ()))))
        self._operators = describe_operators(layout, files, self.epoch, named)
        self._uids = uids
        try:
            identity = source.read_identity()
        except (FileNotFoundError, CorruptRecordError):  # its checkpoints may still be whole
            identity = None
        self.job_id = identity.job_id if identity else None
        self.name = f"epoch {self.epoch} of {source.uri}"
        self._directory = job_directory(source.uri).rpartition("/")[2]
        self.state = Side(
            identity.name if identity else self._directory,
            backend_of(self.settings.get(PROVIDER, "")),
            int(self.settings[PARTITIONS]),
            job_id=self.job_id,
            epoch=self.epoch,
            watermark_ms=self.watermark_ms,
        )

    def parts(self, wanted: PlannedState | None) -> Parts:
        """Find the parts by number; an operator of another type does not take over the state."""
        uids = self._job.program.uids
        operators = []
        sources: dict[str, tuple[Source, int | None]] = {}
        for operator in self._operators:
            index = operator.index
            known = index < uids.operator_count
            if wanted is not None:
                known = index in wanted.operators and wanted.operators[index].name == operator.name
            here = replace(operator, uid=uids.of_operator(index)) if known else operator
            operators.append((here, index if known else None))
        for line, offset in enumerate(self._offsets):
            if line < len(uids.source_lines):
                number = uids.source_lines[line]
                source = Source(uids.of_source(number), number, offset)
                sources.setdefault(source.uid, (source, number))
            else:
                source = Source(f"source-{line}", line, offset)
                sources.setdefault(f"line {line}", (source, None))
        return Parts(operators, list(sources.values()))

    # --- problems

    def problems(self) -> Iterator[str]:
        """Yield the problems: what a checkpoint cannot change, and parts that differ."""
        job, uids = self._job, self._job.program.uids
        backend = self.state.state_backend
        if job.partitions is not None:
            yield (
                f"{self._path} is no savepoint; a retained checkpoint keeps its number of state "
                f"partitions. Leave parallelism={job.partitions} out, or take a savepoint of that "
                "job and restore it"
            )
        if self._operators and backend != job.backend.value:
            yield (
                f"the checkpoint's state is of state_backend {backend!r}, and the program's is "
                f"{job.backend.value!r}; keep that, or take a savepoint of that job, which goes "
                "onto any"
            )
        if job.claim_mode is ClaimMode.CLAIM:
            yield (
                f"claim_mode='claim' is for savepoints: {self._path} is a checkpoint in the "
                "directory of its job, which deletes its checkpoints itself; leave it out"
            )
        for change in uids.moves(self._uids, self._offsets):
            yield (
                f"{change}; a retained checkpoint is restored by Spark's numbers: take a savepoint "
                "of that job, which is restored by uid"
            )
        if len(self._offsets) != len(uids.source_lines):
            yield (
                f"the checkpoint has offsets of {len(self._offsets)} sources, the program reads "
                f"{len(uids.source_lines)}; a retained checkpoint is restored into the same "
                "sources: take a savepoint of that job to change them"
            )
        yield from unfit_offsets(self._directory, self._offsets, uids, job.reading)
        offsets, topics = offsets_by_uid(self._offsets, uids), self._source.read_known().topics
        yield from made_again(
            self._directory, offsets, topics, ask_topic_ids(job.reading, offsets), job.reading
        )
        for uid in self._to_commit.keys() - set(job.sinks):
            yield (
                f"sink {uid!r} has {self._to_commit[uid]} transactions to commit, and the program "
                "has no such sink; declare it, or start the first job once, which commits them"
            )
        state = self._source.channel_state(self.epoch)
        if job.plan is not None and (why := unfit_rows(state, job.plan)):
            yield f"{self._path} has {state.rows} rows of channel state, {why}"

    def misfits(self, parts: Parts, wanted: PlannedState) -> Iterator[str]:
        """Yield a problem if the operators differ."""
        old = {operator.index: operator.name for operator in self._operators}
        new = {index: operator.name for index, operator in wanted.operators.items()}
        if old != new:
            yield (
                f"the checkpoint has state of the operators {_listed(old)}, and the program "
                f"has {_listed(new)}; a retained checkpoint is restored into the same "
                "operators: take a savepoint of that job to change them"
            )

    # --- for the plan

    def metadata(self) -> StateMetadata:
        """Return the metadata in the first job's Spark checkpoint location."""
        return StateMetadata.of(self._source.spark_files, self.epoch)

    def sinks(self) -> Iterator[SinkPlan]:
        """Yield the program's sinks, and those with transactions; no others are known."""
        commit, abort = self._to_commit, self._undecided()
        for uid in dict.fromkeys([*self._job.sinks, *commit, *abort]):
            yield SinkPlan(uid, None, commit=commit[uid], abort=abort[uid])

    @cached_property
    def _to_commit(self) -> Counter[str]:
        """Return the number of committables of each sink, decided and not known to be committed."""
        return committables_of(read_waiting(self._source, *attempt) for attempt in self._waiting)

    def _undecided(self) -> Counter[str]:
        """Return the number of committables of each sink from undecided attempts."""
        return committables_of(standing_attempts(self._source, self._source.latest_decision()))

    def warnings(self) -> Iterator[str]:
        """Yield a warning if the first job has gone on."""
        latest = self._source.latest_decision()
        # Of its own lineage so far the plan says so already.
        if latest > self.epoch and job_directory(self._source.uri) != self._job.directory:
            yield (
                f"the first job has decided epochs {self.epoch + 1} to {latest} after this one: "
                "their rows, which the sinks hold already, are written again by the restored job"
            )

    # --- the restore

    def decisions(self) -> dict[str, Any]:
        """Return the attempts that this job commits."""
        first = self._waiting[0][0] if self._waiting else self.epoch + 1
        return {"first_epoch": first, "waiting": self._waiting}

    def claim(self, job_id: str, directory: str) -> None:
        """Do nothing: `problems` has refused a claim."""

    def copy(self, target: CheckpointStore, decided: Mapping[str, Any], parts: Parts) -> None:
        """Copy the files that Spark needs of this epoch, and the rows that wait after it."""
        copy_checkpoint(self._spark, self._source, target, self._found, decided["query_id"])
        copy_channel_state(self._source, target, self.epoch)

    def waiting(self, decided: Mapping[str, Any]) -> Waiting:
        """Return the transactions decided to be this job's. The first job died before it recorded
        their commits, or is about to record them. Both jobs may commit: commits are idempotent."""
        waiting: dict[int, Callable[[], Mapping[str, SinkEpoch]]] = {
            epoch: partial(read_waiting, self._source, epoch, generation)
            for epoch, generation in decided["waiting"]
        }
        state = self._source.channel_state(self.epoch)
        if state != NO_CHANNEL_STATE and self.epoch not in waiting:
            rows_alone = PreparedSinks()  # the first job has committed its transactions
            rows_alone.channel_state = state
            waiting[self.epoch] = lambda: rows_alone
        return waiting


def _listed(operators: Mapping[int, str]) -> str:
    return ", ".join(f"{i} ({name})" for i, name in sorted(operators.items())) or "none"
