"""The restore plan of a retained checkpoint: what `restore/planner.py` does for savepoints.

A checkpoint is copied as it is (`savepoints/restore/checkpoint.py`), so the program must have its
operators and sources under the numbers that Spark gave them, its state backend and its number of
partitions. It says nothing of uids; the job's checkpoint statistics do, where there are some: by
them two parts that have changed places are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.inspection import Inspection
from seamark.checkpoint.spark_files import read_log
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.model.errors import CorruptRecordError, DamagedCheckpointError, RestoreError
from seamark.protocol.states import Seal
from seamark.runtime.kafka_topics import topics_left
from seamark.runtime.operator_uids import moved
from seamark.runtime.state_backend import PROVIDER, backend_of
from seamark.savepoints.record import Store
from seamark.savepoints.restore.checkpoint import find_checkpoint, find_waiting
from seamark.savepoints.restore.options import (
    NewJob,
    Prepared,
    job_state,
    new_operators,
    new_sources,
    require_count,
    schema_problem,
    unnamed_warnings,
)
from seamark.savepoints.restore.plan import (
    Action,
    ClaimMode,
    JobState,
    OperatorPlan,
    RestorePlan,
    SinkPlan,
    SourcePlan,
)
from seamark.savepoints.state.layout import (
    PARTITIONS,
    OperatorInfo,
    StateLayout,
    read_operators,
)
from seamark.savepoints.state.planned import PlannedState, StateMetadata, differing
from seamark.savepoints.state.rows import StateClasses


def of_checkpoint(
    spark: SparkSession,
    path: str,
    job: NewJob,
    begun: Mapping[str, Any] | None,
    directory: Path,
) -> Prepared:
    """Return the plan of the checkpoint at `path`. Raises RestoreError if there is none."""
    try:
        source, checkpoint = find_checkpoint(spark, path, begun["epoch"] if begun else None)
    except DamagedCheckpointError as error:
        nothing = JobState("", "", 0)
        plan = RestorePlan(
            path, "checkpoint", None, nothing, job_state(job, 0), job.claim_mode,
            problems=error.problems or (str(error),),
        )  # fmt: skip
        return Prepared(plan, failure=error)
    return _Planning(spark, source, checkpoint, path, job, directory).prepared()


class _Planning:
    """One checkpoint and one program."""

    def __init__(
        self,
        spark: SparkSession,
        source: CheckpointStore,
        checkpoint: Inspection,
        path: str,
        job: NewJob,
        directory: Path,
    ) -> None:
        self._spark, self._source, self._job = spark, source, job
        self._path, self._directory = path, directory
        self._epoch, self._waiting = checkpoint.epoch, find_waiting(source, checkpoint)
        files = source.spark_files
        metadata, *self._offsets = read_log(files, f"offsets/{self._epoch}")
        self._settings: dict[str, str] = metadata["conf"]
        commit = read_log(files, f"commits/{self._epoch}")[0]
        self._watermark_ms = int(commit.get("nextBatchWatermarkMs", 0))
        self._old = {o.index: o for o in read_operators(files, self._epoch)}
        self._uids = StatisticsStore(source.files).uids(self._epoch)
        self._problems: list[str] = []

    def prepared(self) -> Prepared:
        job, uids = self._job, self._job.program.uids
        partitions = int(self._settings[PARTITIONS])
        backend = backend_of(self._settings.get(PROVIDER, ""))
        self._problems += self._settings_problems(backend)
        operators = tuple(self._operators())
        self._problems += self._moved("source", uids.sources)
        if len(self._offsets) != len(uids.source_lines):
            self._problems.append(
                f"the checkpoint has offsets of {len(self._offsets)} sources, the program reads "
                f"{len(uids.source_lines)}; a retained checkpoint is restored into the same "
                "sources: take a savepoint of that job to change them"
            )
        name = self._source.uri.rpartition("/")[2]
        self._problems += topics_left(name, self._offsets, uids, job.reading)
        commit, abort = self._transactions()
        for uid in commit.keys() - set(job.sinks):
            self._problems.append(
                f"sink {uid!r} has {commit[uid]} transactions to commit, and the program has no "
                "such sink; declare it, or start the first job once, which commits them"
            )
        try:
            identity = self._source.read_identity()
        except (FileNotFoundError, CorruptRecordError):
            identity = None
        plan = RestorePlan(
            path=self._path,
            kind="checkpoint",
            format=None,
            source=JobState(
                identity.name if identity else name,
                backend,
                partitions,
                job_id=identity.job_id if identity else None,
                epoch=self._epoch,
                watermark_ms=self._watermark_ms,
            ),
            target=job_state(job, partitions),
            claim_mode=job.claim_mode,
            operators=operators,
            sources=tuple(self._sources()),
            sinks=tuple(
                SinkPlan(uid, None, commit=commit[uid], abort=abort[uid])
                for uid in dict.fromkeys([*job.sinks, *commit, *abort])
            ),
            warnings=(*unnamed_warnings(uids), *self._later_epochs()),
            problems=tuple(self._problems),
        )
        return Prepared(plan)

    def _settings_problems(self, backend: str) -> Iterator[str]:
        job = self._job
        if job.partitions is not None:
            yield (
                f"{self._path} is no savepoint; a retained checkpoint keeps its number of state "
                f"partitions. Leave parallelism={job.partitions} out, or take a savepoint of that "
                "job and restore it"
            )
        if self._old and backend != job.backend.value:
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

    def _operators(self) -> Iterator[OperatorPlan]:
        uids = self._job.program.uids
        try:
            wanted = PlannedState(
                self._spark,
                self._job.program,
                self._settings,
                self._directory,
                watermark_ms=self._watermark_ms,
            )
            require_count(wanted, uids)
        except RestoreError as error:
            self._problems.append(str(error))
            return
        placed = {
            index for index, old in self._old.items()
            if index in wanted.operators and wanted.operators[index].name == old.name
        }  # fmt: skip
        if placed != set(self._old) or placed != set(wanted.operators):
            self._problems.append(
                f"the checkpoint has state of the operators {_listed(self._old)}, and the program "
                f"has {_listed(wanted.operators)}; a retained checkpoint is restored into the same "
                "operators: take a savepoint of that job to change them"
            )
            refusals: dict[int, str] = {}
        else:
            old_metadata = StateMetadata.of(self._source.spark_files, self._epoch)
            refusals = wanted.refusals(old_metadata, {index: index for index in placed})
        named = self._uids.get("operator", [])
        self._problems += self._moved("operator", uids.operators)
        stores = {index: self._stores(self._old[index]) for index in placed}
        for index, old in self._old.items():
            was = named[index] if index < len(named) else f"operator-{index}"
            uid = uids.of_operator(index) if index in placed else was
            if index in refusals:
                self._problems.append(
                    schema_problem(
                        f"operator {uid!r} ({old.name})",
                        refusals[index],
                        stores[index],
                        wanted.stores(index),
                    )
                )
            yield OperatorPlan(
                uid,
                index in placed and index in uids.operators,
                old.name,
                Action.MAPPED if index in placed else Action.DROPPED,
                evolved=index in placed
                and index not in refusals
                and bool(differing(stores[index], wanted.stores(index))),
            )
        yield from new_operators(wanted, uids, placed)

    def _stores(self, operator: OperatorInfo) -> tuple[Store, ...]:
        location = self._source.spark_files.uri
        layout = StateLayout(
            self._spark, StateClasses.of(self._spark), location, location, self._settings, 1
        )
        described = (layout.store(operator, info) for info in operator.stores)
        return tuple(Store(store.info.name, "", store.families) for store in described)

    def _moved(self, kind: str, wanted: Mapping[int, str]) -> Iterator[str]:
        for found in moved(kind, self._uids.get(kind, ()), wanted):
            yield (
                f"{found}; a retained checkpoint is restored by Spark's numbers: take a savepoint "
                "of that job, which is restored by uid"
            )

    def _sources(self) -> Iterator[SourcePlan]:
        uids = self._job.program.uids
        mapped: dict[str, int] = {}
        for line, offset in enumerate(self._offsets):
            if line >= len(uids.source_lines):
                yield SourcePlan(f"source-{line}", False, Action.DROPPED, offset)
                continue
            number = uids.source_lines[line]
            if (uid := uids.of_source(number)) not in mapped:
                mapped[uid] = number
                yield SourcePlan(uid, number in uids.sources, Action.MAPPED, offset)
        yield from new_sources(uids, mapped)

    def _transactions(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many committables each sink has that are decided and not known to be
        committed, and how many that are not decided."""
        commit, abort = Counter[str](), Counter[str]()
        for epoch, generation in self._waiting:
            for uid, part in self._source.read_prepared(epoch, generation).items():
                commit[uid] += len(part.committables)
        latest = self._source.latest_decision()
        for epoch in (e for e in self._source.epochs() if e > latest):
            record = self._source.epoch(epoch)
            for generation in record.prepared:
                if record.seals.get(generation) is not Seal.ABORT:
                    for uid, part in self._source.read_prepared(epoch, generation).items():
                        abort[uid] += len(part.committables)
        return commit, abort

    def _later_epochs(self) -> Iterator[str]:
        latest = self._source.latest_decision()
        if latest > self._epoch:
            yield (
                f"the first job has decided epochs {self._epoch + 1} to {latest} after this one: "
                "their rows, which the sinks hold already, are written again by the restored job"
            )


def _listed(operators: Mapping[int, OperatorInfo]) -> str:
    return ", ".join(f"{i} ({o.name})" for i, o in sorted(operators.items())) or "none"
