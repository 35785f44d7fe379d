"""Takes a savepoint: exports one decided epoch of a Spark checkpoint location.

The location is only read; its job may be running, as long as it keeps this epoch. `take/running.py`
calls `export_savepoint` for a running job, `take/checkpoint.py` for one that is not running. The
state goes along as rows, or, natively, as files (`state/files.py`). Back: `restore/location.py`.
"""

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from seamark.api.config import StateBackend
from seamark.checkpoint.drained import before, is_raised
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.spark_files import (
    StateTree,
    log_paths,
    log_version,
    metadata_at,
    read_log,
    read_offsets,
)
from seamark.checkpoint.store import Known
from seamark.files import Directory, in_threads
from seamark.model import failpoints
from seamark.model.errors import CheckpointError
from seamark.savepoints.record import (
    TAKING,
    Operator,
    SavepointRecord,
    SavepointType,
    Sink,
    Source,
    require_new,
    write_savepoint,
)
from seamark.savepoints.state.files import copy_state, describe_operators, state_files
from seamark.savepoints.state.layout import StateLayout, compact_json, read_operators
from seamark.savepoints.state.rows import StateClasses, StateVersion, export_rows, with_files
from seamark.savepoints.take.uncommitted import Uncommitted, merged
from seamark.spark.hadoop_files import open_files
from seamark.spark.java_calls import root_cause
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.state_backend import PARTITIONS, PROVIDER, backend_of

Listed = dict[str, tuple[int, int]]
"""Bytes and CRC-32 of files, by path: a part of `SavepointRecord.files`."""

_SYNCS_AT_ONCE = 4


@dataclass(frozen=True)
class SavedJob:
    """The exported epoch's job, as in the savepoint's record. `sinks`: the type of each by its uid.
    `directory`: the place of its records (a URI), if it has uncommitted transactions. `known`: what
    its newest lease has."""

    job_id: str
    name: str
    uids: OperatorUids
    sinks: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    known: Known = field(default_factory=Known)


@dataclass(frozen=True)
class Beside:
    """The stream beside which a savepoint is taken; by default nothing runs."""

    run_id: str = ""
    """The run of Spark's query in this driver: its state in memory need not be read again."""
    goes_on: bool = False
    """Whether the stream goes on, so most cores are left to it."""
    uncommitted: Callable[[], Uncommitted] = lambda: ({}, {})
    """Called at the end for the transactions up to this epoch that may not be committed yet."""
    writing: Callable[[int], None] = lambda expected: None
    """Called with the bytes of the epoch's state files before any is written."""


def export_savepoint(
    spark: SparkSession,
    location: str,
    epoch: int,
    target: str,
    job: SavedJob,
    type_: SavepointType = SavepointType.CANONICAL,
    beside: Beside | None = None,
) -> SavepointRecord:
    """Write a savepoint of `epoch` into the new directory `target`, and return it.

    `location`: Spark's checkpoint location (a URI). `epoch` is decided in it (``commits/<epoch>``
    is there), and stays until this call returns. The savepoint is then whole. If the call fails or
    dies, `target` has no ``savepoint.json`` and is to be deleted.

    Raises SavepointError if `target` has files already, CheckpointError.
    """
    source = open_files(spark, location, make=False)
    files = open_files(spark, target)
    require_new(files, TAKING)
    if not source.exists(f"commits/{epoch}"):
        raise CheckpointError(
            f"{location}: epoch {epoch} is not decided; there is no commits/{epoch}"
        )
    beside = beside or Beside()
    state = _SavedState(spark, source, files, epoch, job.uids, beside)
    tree = StateTree.read(source)
    needed = state_files(source, tree, epoch)
    beside.writing(sum(needed.values()))
    with ThreadPoolExecutor(1) as pool:  # each waits for the disk, or for Spark, most of its time
        small = pool.submit(_copy_small_files, source, files, tree, epoch, job.uids)
        if type_ is SavepointType.NATIVE:
            operators, of_state = state.copied(needed)
        else:
            operators, of_state = state.exported()
        listed = small.result()
    waiting, kept = beside.uncommitted()
    record = _record(spark.version, state, job, operators, waiting)
    record = replace(record, type=type_, files={**listed, **of_state, **kept})
    failpoints.reached("savepoint-written")
    write_savepoint(files, record)
    return record


def _record(
    spark_version: str,
    state: "_SavedState",
    job: SavedJob,
    operators: Sequence[Operator],
    waiting: Mapping[int, Mapping[str, SinkEpoch]],
) -> SavepointRecord:
    """Return the content of ``savepoint.json``, except for the type and the files."""
    lines = job.uids.source_lines or tuple(range(len(state.offsets)))
    committables, rows, earlier = merged(waiting, state.epoch)
    watermark_ms = int(state.commit.get("nextBatchWatermarkMs", 0))
    return SavepointRecord(
        uri=state.files.uri,
        job_id=job.job_id,
        job_name=job.name,
        epoch=state.epoch,
        created_at=time.time(),
        spark_version=spark_version,
        state_backend=backend_of(state.settings.get(PROVIDER, "")),
        partitions=int(state.settings[PARTITIONS]),
        watermark_ms=before(watermark_ms),
        settings=state.settings,
        values_by=job.known.settings,
        sources=tuple(
            _source(job, n, offset)
            for n, offset in sorted(dict(zip(lines, state.offsets, strict=True)).items())
        ),
        source_lines=lines,
        operators=tuple(operators),
        committables=committables,
        drained=is_raised(watermark_ms),
        sinks=tuple(Sink(uid, sink, rows.get(uid, 0)) for uid, sink in job.sinks.items()),
        job_directory=job.directory if committables else "",
        earlier=earlier,
    )


def _source(job: SavedJob, number: int, offset: Any) -> Source:
    uid = job.uids.of_source(number)
    kind, topics = job.uids.source_kinds.get(uid, ""), job.known.topics.get(uid, {})
    return Source(uid, number, offset, kind, topics)


def _copy_small_files(
    source: Directory,
    files: Directory,
    tree: StateTree,
    epoch: int,
    uids: OperatorUids,
) -> Listed:
    """Copy Spark's logs and the state's metadata; return the copied files. All is as it was, but a
    source has its number for a name, and the offset log is of version 1."""
    numbers = {f"sources/{name}": f"sources/{n}" for n, name in uids.source_names.items()}

    def copy(path: str) -> tuple[str, tuple[int, int]]:
        data = source.read(path)
        if path.startswith("offsets/"):
            version, metadata, *_ = data.decode().split("\n")
            lines = uids.lines_of(read_offsets(source, int(path.removeprefix("offsets/"))))
            if version == "v2":
                texts = ["-" if line is None else compact_json(line) for line in lines]
                data = "\n".join(["v1", metadata, *texts]).encode()
        directory, _, name = path.rpartition("/")
        path = f"{numbers.get(directory, directory)}/{name}"
        files.create(f"spark/{path}", data)
        return f"spark/{path}", (len(data), zlib.crc32(data))

    by_directory = uids.by_directory if uids.source_lines else None
    listed = [*log_paths(source, epoch, by_directory), *metadata_at(tree.metadata, epoch)]
    paths = [path for path in listed if path != "metadata" and not path.endswith(".crc")]
    return dict(in_threads(copy, paths, _SYNCS_AT_ONCE))  # the disk syncs several as fast as one


class _SavedState:
    """The state as of `epoch` in the Spark checkpoint location `source`, on its way into the
    savepoint `files`. `settings`, `offsets`, `commit`: the content of the epoch's entries in
    Spark's offset and commit logs."""

    def __init__(
        self,
        spark: SparkSession,
        source: Directory,
        files: Directory,
        epoch: int,
        uids: OperatorUids,
        beside: Beside,
    ) -> None:
        self._spark, self._source, self._uids, self._beside = spark, source, uids, beside
        self.files, self.epoch = files, epoch
        metadata = read_log(source, f"offsets/{epoch}")[0]
        self.offsets = uids.lines_of(read_offsets(source, epoch))
        self.settings: dict[str, str] = metadata["conf"]
        self.commit: dict[str, Any] = read_log(source, f"commits/{epoch}")[0]

    def _layout(self) -> StateLayout:
        at = self._source.uri
        spark_format = log_version(self._source, f"commits/{self.epoch}")
        classes = StateClasses.of(self._spark)
        return StateLayout(self._spark, classes, at, at, self.settings, spark_format)

    def copied(self, needed: Mapping[str, int]) -> tuple[list[Operator], Listed]:
        """Copy the `needed` files (`state_files`); return the operators, and the copied files."""
        with ThreadPoolExecutor(1) as pool:
            copied = pool.submit(
                copy_state,
                self._spark,
                self._source,
                self.files,
                needed,
                aside=self._beside.goes_on,
            )
            layout = self._layout()
            operators = describe_operators(layout, self._source, self.epoch, self._uids)
            return operators, copied.result()

    def exported(self) -> tuple[list[Operator], Listed]:
        """Write the rows of every operator; return the operators, and the files of rows. Raises
        CheckpointError if the state cannot be read."""
        layout, infos = self._layout(), read_operators(self._source, self.epoch)
        try:
            operators: list[Operator] = []
            versions: list[StateVersion] = []
            for info in infos:
                operator, described = layout.operator(info, self._uids)
                operators.append(operator)
                versions += self._versions(operator, [store.java for store in described])
            return self._written(operators, versions)
        except (Py4JJavaError, CapturedException) as error:
            raise CheckpointError(
                f"{self._source.uri}: the state of epoch {self.epoch} cannot be read: "
                f"{root_cause(error)}"
            ) from error

    def _versions(self, operator: Operator, java: Sequence[Any]) -> list[StateVersion]:
        ids = (self.commit.get("stateUniqueIds") or {}).get(str(operator.index))
        return [
            StateVersion(
                store,
                operator.partitions,
                self.epoch + 1,
                [ids[p][number] for p in range(operator.partitions)] if ids else None,
                f"{self.files.uri}/{operator.stores[number].path}",
            )
            for number, store in enumerate(java)
        ]

    def _written(
        self, operators: Sequence[Operator], versions: Sequence[StateVersion]
    ) -> tuple[list[Operator], Listed]:
        aside, listed = self._beside.goes_on, Listed()
        # A partition of `hashmap` is loaded into the heap, beside the stream's own.
        few = aside or backend_of(self.settings.get(PROVIDER, "")) == StateBackend.HASHMAP.value
        written = iter(
            export_rows(self._spark, versions, self._beside.run_id, aside=aside, few=few)
        )
        return [
            replace(of, stores=tuple(with_files(s, next(written), listed) for s in of.stores))
            for of in operators
        ], listed
