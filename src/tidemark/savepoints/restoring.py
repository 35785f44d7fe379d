"""Makes a Spark checkpoint location out of a canonical savepoint: for another number of state
partitions, another state backend, and operators and sources that have changed their numbers.

`plan`-making and the job's own records are not here: who restores a job decides what goes where
(`Placement`), and calls `check_restore` before anything is written, then `restore_canonical`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tidemark.api.config import StateBackend
from tidemark.checkpoint.spark_files import log_version, read_log
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model import failpoints
from tidemark.model.errors import CheckpointError, DamagedCheckpointError, RestoreError
from tidemark.runtime.hadoop_files import open_files
from tidemark.runtime.state_backend import CHANGELOG, PROVIDER, provider_of
from tidemark.savepoints.canonical import checksums, root_cause
from tidemark.savepoints.native import MISSING, copy_back, read_files
from tidemark.savepoints.operator_state import (
    JOIN_FORMAT,
    PARTITIONS,
    OperatorInfo,
    StateLayout,
    read_operators,
    refuse_backend,
)
from tidemark.savepoints.record import Operator, Savepoint, SavepointType, read_savepoint
from tidemark.savepoints.state_rows import ROW, StateClasses, write_rows, writing_session

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_OPERATOR_FILE = re.compile(r"spark/(state/)(\d+)(/.*)")
_SOURCE_FILE = re.compile(r"spark/(sources/)(\d+)(/.*)")
_SCHEMA_PATH = re.compile(r"^.*?/state/\d+/_stateSchema/(.*)$")


@dataclass(frozen=True)
class Placement:
    """What becomes of a savepoint's parts, by uid: Spark's number of it in the new job. An operator
    that is not named is dropped, with its state; so is a source, with its offsets."""

    operators: Mapping[str, int]
    sources: Mapping[str, int]
    source_lines: tuple[int, ...] = ()
    """Spark's numbers of the new job's sources, line by line of its offset log; without them every
    source stands in the plan once."""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    """By uid of a source: the offset (JSON) that it goes on from, where that is not the
    savepoint's."""

    @staticmethod
    def unchanged(savepoint: Savepoint) -> Placement:
        """Everything keeps its number."""
        return Placement(
            {o.uid: o.index for o in savepoint.operators},
            {s.uid: s.index for s in savepoint.sources},
            savepoint.source_lines,
        )


JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


@dataclass(frozen=True)
class NewOperator:
    """A stateful operator of the new job that the savepoint has no state of: it begins empty.

    `name` is Spark's, as in `record.Operator.name`. Spark wants its state at the savepoint's epoch
    all the same.
    """

    index: int
    name: str
    keyed: bool = True
    """Whether its rows are spread by their key; an aggregation without grouping is not."""
    prefix_columns: int = 0
    """Of a session window: the columns of its grouping, without the window."""

    def may_begin_empty(self, settings: Mapping[str, str]) -> bool:
        """Whether what Spark wants of its state is known: not so of a transformWithState, and of a
        join in another state format than Spark's default."""
        if self.name == "symmetricHashJoin":
            return settings.get(JOIN_FORMAT, "2") == "2"
        return not self.name.startswith("transformWithState")

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of its state stores."""
        return JOIN_STORES if self.name == "symmetricHashJoin" else ("default",)


def check_restore(
    spark: SparkSession,
    path: str,
    placement: Placement | None,
    backend: StateBackend,
    new_operators: Sequence[NewOperator] = (),
    *,
    partitions: int | None = None,
) -> Savepoint:
    """Return the savepoint at `path` if it is whole and can be restored so; nothing is written.

    Raises SavepointError if there is no whole savepoint, DamagedCheckpointError naming every file
    that is missing or altered, RestoreError if the backend cannot hold one of the placed operators.
    """
    files = open_files(spark, path, make=False)
    savepoint = read_savepoint(files)
    placement = placement or Placement.unchanged(savepoint)
    for uid in placement.operators:
        savepoint.operator(uid)
    for new in new_operators:
        if not new.may_begin_empty(savepoint.settings):
            raise RestoreError(
                f"restore of {path}: operator {new.index} of the new program is a {new.name} that "
                "the savepoint has no state of, and that cannot be added to a job that has run; "
                "start the program without the savepoint"
            )
    if problems := native_problems(spark, savepoint, backend, partitions or savepoint.partitions):
        raise RestoreError(f"restore of {path}: {'; '.join(problems)}")
    refuse_backend(
        [o for o in savepoint.operators if o.uid in placement.operators],
        backend is StateBackend.ROCKSDB,
    )
    problems = _damage(spark, files, savepoint)
    if problems:
        raise DamagedCheckpointError(
            f"savepoint {path} is damaged; nothing was written. Found:"
            + "".join(f"\n  {line}" for line in problems),
            problems=tuple(problems),
        )
    return savepoint


def native_problems(
    spark: SparkSession, savepoint: Savepoint, backend: StateBackend, partitions: int
) -> list[str]:
    """Return why a native savepoint cannot be restored so, a line for each; [] for a canonical one,
    whose rows can go anywhere."""
    if savepoint.type is not SavepointType.NATIVE:
        return []
    saved = log_version(
        open_files(spark, savepoint.uri, make=False), f"spark/commits/{savepoint.epoch}"
    )
    wanted = session_format(spark)
    found = []
    if backend.value != savepoint.state_backend:
        found.append(
            f"state_backend is {backend.value!r}, and its state is of {savepoint.state_backend!r}"
        )
    if partitions != savepoint.partitions:
        found.append(
            f"parallelism is {partitions}, and its state has {savepoint.partitions} partitions"
        )
    if wanted != saved:
        found.append(f"{FORMAT} is {wanted}, and its state is of format {saved}")
    return [
        f"{problem}; a native savepoint is a copy of the state's files: leave that as it is, or "
        "take a savepoint of type canonical"
        for problem in found
    ]


def session_format(spark: SparkSession) -> int:
    """Return the checkpoint format (1 or 2) that a query of this session writes."""
    return int(spark.conf.get(FORMAT, "1") or 1)


def _damage(spark: SparkSession, files: CheckpointFiles, savepoint: Savepoint) -> list[str]:
    rows = {path for path in savepoint.files if path.startswith("state/")}
    if savepoint.type is SavepointType.CANONICAL:
        found = checksums(spark, files)
    else:
        found = read_files(spark, files.uri, {path: savepoint.files[path][0] for path in rows})
        found = {path: of_file for path, of_file in found.items() if of_file[0] != MISSING}
    for path in savepoint.files.keys() - rows:
        try:
            data = files.read(path)
        except FileNotFoundError:
            continue
        found[path] = len(data), zlib.crc32(data)
    problems = []
    for path, known in sorted(savepoint.files.items()):
        if path not in found:
            problems.append(f"{files.uri}/{path}: missing")
        elif found[path][0] < 0:
            problems.append(f"{files.uri}/{path}: the file system's checksum does not match")
        elif tuple(found[path]) != tuple(known):
            problems.append(
                f"{files.uri}/{path}: it has {found[path][0]} bytes, which differ from the "
                f"{known[0]} that the savepoint was written with"
            )
    # A file of rows too many would be read as well.
    problems += [
        f"{files.uri}/{path}: not of this savepoint" for path in found.keys() - savepoint.files
    ]
    return problems


def restore_canonical(
    spark: SparkSession,
    savepoint: Savepoint,
    target: str,
    *,
    query_id: str,
    partitions: int | None = None,
    backend: StateBackend | None = None,
    placement: Placement | None = None,
    new_operators: Sequence[NewOperator] = (),
) -> None:
    """Make `target` a Spark checkpoint location from which a query goes on after the savepoint's
    epoch.

    `savepoint`: as `check_restore` returned it; `target`: a URI; `query_id`: of the new query, a
    UUID; `partitions`, `backend`: of the new state, None for the savepoint's own; `new_operators`:
    those of the new job that are not placed.
    ``commits/<epoch>`` is written last: without it the restore was cut off, and calling it again,
    with the same arguments, ends it. Nothing is done if it is there.

    Raises CheckpointError if the rows that were written are not those of the savepoint.
    """
    files = open_files(spark, target)
    epoch = savepoint.epoch
    if files.exists(f"commits/{epoch}"):
        return
    placement = placement or Placement.unchanged(savepoint)
    backend = backend or StateBackend(savepoint.state_backend)
    partitions = partitions or savepoint.partitions
    if problems := native_problems(spark, savepoint, backend, partitions):
        raise RestoreError(f"restore of {savepoint.uri}: {'; '.join(problems)}")
    if partitions < 1:
        raise RestoreError(f"restore: {partitions} state partitions; give at least 1")
    source = open_files(spark, savepoint.uri, make=False)
    settings = {PROVIDER: provider_of(backend), PARTITIONS: str(partitions)}
    _create(files, "metadata", json.dumps({"id": query_id}).encode())
    for path in savepoint.files:
        if path.startswith("spark/offsets/"):
            data = _offsets(source.read(path), savepoint, placement, settings)
            _create(files, path.removeprefix("spark/"), data)
        elif found := _SOURCE_FILE.fullmatch(path):
            uid = next((s.uid for s in savepoint.sources if s.index == int(found[2])), None)
            if uid is not None and uid in placement.sources:
                _create(files, f"sources/{placement.sources[uid]}{found[3]}", source.read(path))
    native = savepoint.type is SavepointType.NATIVE
    spark_format = (
        log_version(source, f"spark/commits/{epoch}") if native else session_format(spark)
    )
    layout = StateLayout(
        spark,
        StateClasses.of(spark),
        f"{savepoint.uri}/spark",
        files.uri,
        # A whole copy is written, whatever the query does later.
        {**savepoint.settings, **settings, CHANGELOG: "false"},
        spark_format,
    )
    described = {
        o.index: o
        for o in read_operators(open_files(spark, f"{savepoint.uri}/spark", make=False), epoch)
    }
    commit = read_log(source, f"spark/commits/{epoch}")[0]
    saved_ids = commit.pop("stateUniqueIds", None) or {}
    ids = {}
    for operator in savepoint.operators:
        if operator.uid in placement.operators:
            index = placement.operators[operator.uid]
            count = partitions if operator.keyed else 1
            _operator_files(source, files, savepoint, operator, index, count)
            if native:
                copy_back(spark, savepoint, operator, files.uri, index)
                found_ids = saved_ids.get(str(operator.index), [])
            else:
                found_ids = _write(
                    spark, layout, savepoint, operator, described[operator.index], index, count
                )
            failpoints.reached("state-restored")
            if any(any(of_partition) for of_partition in found_ids):
                ids[str(index)] = found_ids
    for new in new_operators:
        count = partitions if new.keyed else 1
        found_ids = _write_empty(spark, layout, files, new, count, epoch)
        if any(any(of_partition) for of_partition in found_ids):
            ids[str(new.index)] = found_ids
    if ids:
        commit["stateUniqueIds"] = ids
    _create(files, f"commits/{epoch}", f"v{spark_format}\n{_compact(commit)}".encode())


def _offsets(
    data: bytes, savepoint: Savepoint, placement: Placement, settings: Mapping[str, str]
) -> bytes:
    """Return an entry of the offset log for the new backend, partitions and order of sources."""
    version, metadata, *lines = data.decode().split("\n")
    body = json.loads(metadata)
    body["conf"].update(settings)
    by_number = dict(zip(savepoint.source_lines, lines, strict=True))
    offsets = {
        placement.sources[s.uid]: _compact(placement.offsets[s.uid])
        if s.uid in placement.offsets
        else by_number[s.index]
        for s in savepoint.sources
        if s.uid in placement.sources
    }
    numbers = placement.source_lines or range(max(offsets, default=-1) + 1)
    new = [offsets.get(number, "-") for number in numbers]
    return "\n".join([version, _compact(body), *new]).encode()


def _operator_files(
    source: CheckpointFiles,
    files: CheckpointFiles,
    savepoint: Savepoint,
    operator: Operator,
    index: int,
    partitions: int,
) -> None:
    """Write an operator's metadata and state schemas under its new number."""
    for path in savepoint.files:
        found = _OPERATOR_FILE.fullmatch(path)
        if found is None or int(found[2]) != operator.index:
            continue
        data = source.read(path)
        if found[3] == "/_metadata/metadata" or found[3].startswith("/_metadata/v2/"):
            version, text = data.decode().split("\n", 1)
            body = json.loads(text)
            body["operatorInfo"]["operatorId"] = index
            for store in body["stateStoreInfo"]:
                store["numPartitions"] = partitions
                if "stateSchemaFilePaths" in store:
                    store["stateSchemaFilePaths"] = [
                        _SCHEMA_PATH.sub(rf"{files.uri}/state/{index}/_stateSchema/\1", old)
                        for old in store["stateSchemaFilePaths"]
                    ]
            data = f"{version}\n{_compact(body)}".encode()
        _create(files, f"state/{index}{found[3]}", data)


def _write(
    spark: SparkSession,
    layout: StateLayout,
    savepoint: Savepoint,
    operator: Operator,
    info: OperatorInfo,
    index: int,
    partitions: int,
) -> list[list[str]]:
    """Write an operator's stores; return the unique ids by partition and store."""
    by_store = []
    session = writing_session(spark)
    for store, store_info in zip(operator.stores, info.stores, strict=True):
        described = layout.store(info, store_info, index)
        rows = session.read.schema(ROW).parquet(f"{savepoint.uri}/{store.path}")
        try:
            written, found = write_rows(
                rows,
                described.java,
                partitions,
                savepoint.epoch + 1,
                spark=session,
                ordered=any(family.several_values for family in store.families),
            )
        except (Py4JJavaError, CapturedException) as error:
            raise CheckpointError(
                f"restore of {savepoint.uri}: the state of operator {operator.uid!r} "
                f"({operator.name}) cannot be written: {root_cause(error)}"
            ) from error
        expected = sum(family.rows for family in store.families)
        if written != expected:
            raise CheckpointError(
                f"restore of {savepoint.uri}: operator {operator.uid!r}, store {store.name!r}: "
                f"{written} rows were written; the savepoint has {expected}"
            )
        by_store.append(found)
    return [list(of_partition) for of_partition in zip(*by_store, strict=True)]


def _write_empty(
    spark: SparkSession,
    layout: StateLayout,
    files: CheckpointFiles,
    new: NewOperator,
    partitions: int,
    epoch: int,
) -> list[list[str]]:
    """Write empty stores and the metadata of an operator; return the unique ids."""
    metadata = {
        "operatorInfo": {"operatorId": new.index, "operatorName": new.name},
        "stateStoreInfo": [
            {
                "storeName": store,
                "numColsPrefixKey": new.prefix_columns,
                "numPartitions": partitions,
            }
            for store in new.stores
        ],
    }
    path = f"state/{new.index}/_metadata/metadata"
    _create(files, path, f"v1\n{_compact(metadata)}".encode())
    by_store = [
        write_rows(
            None,
            layout.empty_store(new.index, new.name, store),
            partitions,
            epoch + 1,
            spark=spark,
            ordered=False,
        )[1]
        for store in new.stores
    ]
    return [list(of_partition) for of_partition in zip(*by_store, strict=True)]


def _create(files: CheckpointFiles, path: str, data: bytes) -> None:
    try:
        files.create(path, data)
    except FileExistsError:  # from before the restore was cut off: the same bytes
        return


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
