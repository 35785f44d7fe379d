"""A storage with a job in it, written by the drivers' own code: no driver runs."""

from __future__ import annotations

from pathlib import Path

from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionFailure,
    ExecutionStart,
    ExecutionStore,
)
from seamark.checkpoint.local_files import LocalFiles
from seamark.checkpoint.statistics_store import Key, StatisticsRecord, StatisticsStore
from seamark.checkpoint.store import CheckpointStore, JobIdentity
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


def write_job(
    storage: Path,
    name: str,
    checkpoints: int,
    *,
    job_id: str = JOB_ID,
    failed: frozenset[int] = frozenset(),
    state: JobState | None = JobState.FAILED,
    rest_url: str = "",
) -> Path:
    """Make a job's directory: `checkpoints` attempts a second apart, those in `failed` (counted
    from 0) FAILED and repeated; its one execution ends with `state`, or is killed (None)."""
    files = LocalFiles(storage / name)
    store = CheckpointStore(files, files)
    store.create_identity(JobIdentity(job_id, "cd" * 16, name, 0, BEGUN_S))
    executions = ExecutionStore(files)
    graph = JobGraph(
        (Vertex("rows", "source", "rows"), Vertex("files", "sink", "JSON files", ("rows",)))
    ).with_guarantees({})
    setting = {"value": "1s", "origin": "program"}
    config = {"restart-strategy": "none", "user-config": {"checkpoint.interval": setting}}
    pages = {"config": {"jid": job_id, "name": name, "execution-config": config}}
    start = ExecutionStart(job_id, name, "here", 4711, BEGUN_S, rest_url, graph.to_record(), pages)
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
    if state is not None:
        reason = "OSError: the disk is full" if state is JobState.FAILED else ""
        executions.end(number, ExecutionEnd(state, BEGUN_S + checkpoints, reason))
    return storage / name


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
