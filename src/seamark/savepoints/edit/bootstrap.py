"""A savepoint of a job that has never run: its state is made of DataFrames, its sources begin at
the given offsets, or else where the program says.

Spark's plan of the program gives the form of its state (`state/planned.py`); `edit/state.py` writes
the rows. The savepoint is of an epoch 0 that no job has run: restored like any other, the job's
first epoch is 1. `Job.new_savepoint` calls it.
"""

import json
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from seamark.files import Directory
from seamark.model.errors import SavepointError
from seamark.model.ignored import ignored
from seamark.savepoints.claims import remove_savepoint
from seamark.savepoints.edit.state import write_operators, written_frames
from seamark.savepoints.record import (
    SavepointRecord,
    Source,
    require_new,
    write_savepoint,
    write_taking,
)
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.state.layout import compact_json
from seamark.savepoints.state.planned import PlannedState, scratch
from seamark.spark.hadoop_files import open_files
from seamark.spark.planned_query import OFFSET_LOG
from seamark.spark.spark_versions import spark_class
from seamark.spark.state_backend import (
    PARTITIONS,
    PROVIDER,
    clone_session,
    provider_of,
    session_setting,
)

State = Mapping[str, DataFrame | Mapping[str, DataFrame]]
"""By an operator's uid its state; of a transformWithState by the name of the state variable, of a
join by its side, ``left`` and ``right``."""


def new_savepoint(
    spark: SparkSession, job: NewJob, state: State, offsets: Mapping[str, Any], target: str
) -> SavepointRecord:
    """Write a canonical savepoint of a job that never ran into the new directory `target`, a URI.

    `state`: each frame in the form of `read_state` in `edit/state.py`; operators without one are
    empty. `offsets`: by a source's uid, as in Spark's offset log; sources without one begin where
    the program says. Raises SavepointError for a uid unknown to the program, for state that
    contradicts itself or has other columns than its operator's, and for a target that is not empty;
    RestoreError if Spark cannot plan the program.
    """
    uids = job.program.uids
    _require_known(job.name, "operator", state, uids.operator_numbers())
    _require_known(job.name, "source", offsets, uids.source_numbers())
    files = open_files(spark, target)
    require_new(files)
    settings = _settings(spark, job)
    with scratch() as directory:
        planned = PlannedState(spark, job.program, settings, directory)
        for uid, number in uids.operator_numbers().items():
            if number in planned.with_initial_state and uid not in state:
                raise SavepointError(
                    f"job {job.name!r}: operator {uid!r} has an initialState, which Spark gives in "
                    "the first epoch of a query alone, and the job would begin at a later one: "
                    "leave it out, and give the operator its state here"
                )
        savepoint = SavepointRecord(
            uri=files.uri,
            job_id=uuid.uuid4().hex,
            job_name=job.name,
            epoch=0,
            created_at=time.time(),
            spark_version=spark.version,
            state_backend=job.backend.value,
            partitions=int(settings[PARTITIONS]),
            watermark_ms=0,
            settings=settings,
            sources=tuple(
                # As JSON has it: Kafka's partitions may be given as numbers.
                Source(uid, number, json.loads(json.dumps(offsets.get(uid))))
                for uid, number in uids.source_numbers().items()
            ),
            source_lines=uids.source_lines,
            operators=tuple(map(planned.describe, sorted(planned.operators))),
        )
        frames = _checked(savepoint, state)
        write_taking(files, savepoint.job_id, job.name, job.directory, 0)
        try:
            savepoint = _write(spark, files, planned, savepoint, frames)
        except BaseException:
            with ignored(f"the deletion of {files.uri}"):
                remove_savepoint(files)
            raise
    return savepoint


def _require_known(job: str, what: str, given: Mapping[str, Any], known: Mapping[str, int]) -> None:
    for uid in given.keys() - known.keys():
        raise SavepointError(
            f"job {job!r} has no {what} {uid!r}; it has {', '.join(map(repr, known)) or 'none'}"
        )


def _settings(spark: SparkSession, job: NewJob) -> dict[str, str]:
    """Return the settings that Spark would put into the offset log of this job's query."""
    metadata = spark_class(spark._jvm, OFFSET_LOG)
    session = clone_session(spark).conf()  # a start under way has lent it other settings
    settings: dict[str, str] = json.loads(metadata.apply(0, 0, session).json())["conf"]
    settings[PROVIDER] = provider_of(job.backend)
    # A query pins this setting at its start; until then the log has none.
    settings[PARTITIONS] = str(job.partitions or session_setting(spark, PARTITIONS))
    return settings


def _checked(savepoint: SavepointRecord, state: State) -> dict[tuple[str, str, str], DataFrame]:
    """Return the frames by operator, store and column family; raises SavepointError."""
    frames: dict[tuple[str, str, str], DataFrame] = {}
    for uid, given in state.items():
        operator = savepoint.operator(uid)
        by_family = {None: given} if isinstance(given, DataFrame) else dict(given)
        several = len(operator.stores) > 1  # a join's
        for name, frame in by_family.items():
            where = {"store": name} if several else {"family": name}
            new = written_frames(savepoint, operator, frame, **where)
            frames |= {(uid, *at): rows for at, rows in new.items()}
    return frames


def _write(
    spark: SparkSession,
    files: Directory,
    planned: PlannedState,
    savepoint: SavepointRecord,
    frames: Mapping[tuple[str, str, str], DataFrame],
) -> SavepointRecord:
    offsets = {source.index: source.offset for source in savepoint.sources}
    lines = [
        "-" if offsets[number] is None else compact_json(offsets[number])
        for number in savepoint.source_lines
    ]
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": savepoint.settings}
    small = {
        "offsets/0": "\n".join(["v1", compact_json(metadata), *lines]).encode(),
        "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
    }
    for operator in savepoint.operators:
        small |= planned.metadata.moved(
            operator.index, operator.index, operator.partitions, f"{files.uri}/spark"
        )
    for path, data in small.items():
        files.create(f"spark/{path}", data)
    listed = {f"spark/{path}": (len(data), zlib.crc32(data)) for path, data in small.items()}
    operators = write_operators(spark, savepoint, savepoint.uri, frames, listed)
    savepoint = replace(savepoint, operators=operators, files=listed)
    write_savepoint(files, savepoint)
    return savepoint
