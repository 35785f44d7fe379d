"""A storage with a job in it, written by the drivers' own code: no driver runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionFailure,
    ExecutionStart,
    ExecutionStore,
)
from seamark.checkpoint.statistics_store import Key, StatisticsRecord, StatisticsStore
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.files.local import LocalDirectory
from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpointStatistics,
    TaskCheckpointStatistics,
)
from seamark.model.checkpointing_statistics import CheckpointCounts
from seamark.model.job_graph import JobGraph, Vertex
from seamark.model.job_state import JobState

BEGUN_S = 1_700_000_000.0
JOB_ID = "ab" * 16
SMALL = JobGraph(
    (Vertex("rows", "source", "rows"), Vertex("files", "sink", "JSON files", ("rows",)))
)


def write_job(
    storage: Path,
    name: str,
    checkpoints: int,
    *,
    job_id: str = JOB_ID,
    failed: frozenset[int] = frozenset(),
    state: JobState | None = JobState.FAILED,
    rest_url: str = "",
    graph: JobGraph = SMALL,
    savepoints: Mapping[int, Mapping[str, int]] = MappingProxyType({}),
) -> Path:
    """Make a job's directory: `checkpoints` attempts a second apart, those in `failed` (counted
    from 0) FAILED and repeated; its one execution ends with `state`, or is killed (None).
    `savepoints`: after these epochs, each with the rows of its operators by uid."""
    files = LocalDirectory(storage / name)
    store = CheckpointStore(files, files)
    store.create_identity(JobIdentity(job_id, "cd" * 16, name, 0, BEGUN_S))
    executions = ExecutionStore(files)
    setting = {"value": "1s", "origin": "program"}
    config = {"restart-strategy": "none", "user-config": {"checkpoint.interval": setting}}
    pages = {"config": {"jid": job_id, "name": name, "execution-config": config}}
    start = ExecutionStart(
        job_id, name, "here", 4711, BEGUN_S, rest_url, graph.with_guarantees({}).to_record(), pages
    )
    number = executions.begin(start)
    statistics = StatisticsStore(files)
    counts, epoch, attempt = CheckpointCounts(), 0, 0
    for place in range(checkpoints):
        ok = place not in failed
        counts = CheckpointCounts(completed=counts.completed + ok, failed=counts.failed + (not ok))
        one = _checkpoint(epoch, place, ok)
        statistics.write(Key(1, epoch, attempt), StatisticsRecord(one, counts, None))
        epoch, attempt = (epoch + 1, 0) if ok else (epoch, attempt + 1)
        if not ok:
            failure = ExecutionFailure(
                BEGUN_S + place, one.id, "CheckpointExpiredError", one.failure_message, True
            )
            executions.record_failure(number, counts.failed - 1, failure)
    for epoch, rows in savepoints.items():
        taken = _savepoint(storage, epoch, rows)
        statistics.write(Key(1, epoch, 0, is_savepoint=True), StatisticsRecord(taken, counts, None))
    if state is not None:
        reason = "OSError: the disk is full" if state is JobState.FAILED else ""
        executions.end(number, ExecutionEnd(state, BEGUN_S + checkpoints, reason))
    return storage / name


def _savepoint(storage: Path, epoch: int, rows: Mapping[str, int]) -> CheckpointStatistics:
    path = storage.parent / "savepoints" / f"savepoint-{epoch}"
    path.mkdir(parents=True)
    (path / "savepoint.json").touch()
    tasks = [
        TaskCheckpointStatistics(
            uid=uid, kind="operator", name="stateStoreSave", status=CheckpointStatus.COMPLETED,
            rows=count, state_size=40 * count, num_subtasks=2, num_acknowledged_subtasks=2,
        )
        for uid, count in rows.items()
    ]  # fmt: skip
    return CheckpointStatistics(
        id=epoch,
        status=CheckpointStatus.COMPLETED,
        trigger_timestamp=round((BEGUN_S + epoch) * 1000) + 500,
        end_to_end_duration=300,
        checkpoint_type="SAVEPOINT",
        is_savepoint=True,
        savepoint_format="CANONICAL",
        external_path=f"file://{path}",
        state_size=sum(task.state_size for task in tasks),
        rows=sum(rows.values()),
        tasks=tuple(tasks),
    )


def _checkpoint(epoch: int, place: int, ok: bool) -> CheckpointStatistics:
    status = CheckpointStatus.COMPLETED if ok else CheckpointStatus.FAILED
    triggered = round((BEGUN_S + place) * 1000)
    if not ok:
        return CheckpointStatistics(
            id=epoch,
            status=status,
            trigger_timestamp=triggered,
            end_to_end_duration=600,
            failure_timestamp=triggered + 600,
            failure_message=f"epoch {epoch} was not decided within 0.6 s: postgresql://me:hunter2@db/x",
        )
    subtasks = tuple(
        SubtaskCheckpointStatistics(
            index=index,
            ack_timestamp=triggered + 90,
            end_to_end_duration=90 + index,
            checkpointed_size=10,
            state_size=10,
            sync_duration=40,
            async_duration=20,
            alignment_duration=index,
            start_delay=5,
            processed_data=1000,
            rows=25,
        )
        for index in range(2)
    )
    tasks = (
        TaskCheckpointStatistics(
            uid="rows", kind="source", name="generated rows", status=status, rows=50,
            num_subtasks=1, num_acknowledged_subtasks=1,
        ),
        TaskCheckpointStatistics(
            uid="files", kind="sink", name="json files", status=status, rows=50,
            end_to_end_duration=91, sync_duration=40, async_duration=20, processed_data=2000,
            num_subtasks=2, num_acknowledged_subtasks=2, subtasks=subtasks,
        ),
    )  # fmt: skip
    return CheckpointStatistics(
        id=epoch,
        status=status,
        trigger_timestamp=triggered,
        latest_ack_timestamp=triggered + 91,
        end_to_end_duration=120 + place % 50,
        checkpointed_size=2000 + place,
        state_size=5000 + place,
        start_delay=5,
        alignment_duration=1,
        sync_duration=91,
        async_duration=20,
        processed_data=2000,
        rows=50,
        num_subtasks=3,
        num_acknowledged_subtasks=3,
        spark_durations={"addBatch": 90},
        tasks=tasks,
    )
