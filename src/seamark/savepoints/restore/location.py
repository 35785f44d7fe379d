"""Makes a Spark checkpoint location out of a savepoint: with another number of state partitions,
another state backend, or new numbers for operators and sources.

`from_savepoint.py` decides the place of each part (`Placement`), asks for `fit_problems` and
`find_damage` before anything is written, and then calls `restore_canonical`.
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from seamark.api.config import StateBackend
from seamark.checkpoint.drained import undrained
from seamark.checkpoint.spark_files import SOURCE_EVOLUTION, log_version, metadata_at, read_log
from seamark.files import Directory
from seamark.model import failpoints
from seamark.model.errors import CheckpointError
from seamark.run.keyed_operator import IN_FLIGHT
from seamark.savepoints.record import Operator, SavepointRecord, SavepointType, Store
from seamark.savepoints.restore.target import create
from seamark.savepoints.state.files import MISSING, copy_back, read_files
from seamark.savepoints.state.layout import (
    STRICT_DISTRIBUTION,
    StateLayout,
    compact_json,
    hashmap_problems,
    read_operators,
)
from seamark.savepoints.state.planned import PlannedState, StateMetadata
from seamark.savepoints.state.rows import StateClasses, read_rows, write_rows, writing_session
from seamark.spark.hadoop_files import open_files
from seamark.spark.java_calls import root_cause
from seamark.spark.spark_versions import writing_settings
from seamark.spark.state_backend import (
    CHANGELOG,
    FORMAT,
    PARTITIONS,
    PROVIDER,
    given_format,
    provider_of,
)

_SOURCE_FILE = re.compile(r"spark/(sources/)(\d+)(/.*)")


@dataclass(frozen=True)
class Placement:
    """Where a savepoint's parts go, by uid: Spark's number of each in the new job. An operator
    missing here is dropped with its state, a missing source with its offsets."""

    operators: Mapping[str, int]
    sources: Mapping[str, int]
    source_lines: tuple[int, ...] = ()
    """Spark's numbers of the new job's sources, line by line of its offset log; without them every
    source stands in the plan once."""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    """By uid of a source: the offset (JSON) to go on from, if it is not the savepoint's."""
    source_names: Mapping[int, str] = field(default_factory=dict)
    """The new job's names of sources in Spark, by number: then its offset log is of version 2."""

    @staticmethod
    def unchanged(savepoint: SavepointRecord) -> "Placement":
        """Let everything keep its number."""
        return Placement(
            {o.uid: o.index for o in savepoint.operators},
            {s.uid: s.index for s in savepoint.sources},
            savepoint.source_lines,
        )


@dataclass(frozen=True)
class NewOperator:
    """A stateful operator of the new job without state in the savepoint: it begins empty. Spark
    still needs its state at the savepoint's epoch, with the metadata `planned` for the operator
    under its number `index`."""

    index: int
    planned: PlannedState


def new_settings(
    savepoint: SavepointRecord, backend: StateBackend, partitions: int
) -> dict[str, str]:
    """Return Spark's settings in which the new query's differ from the savepoint's."""
    settings = {PROVIDER: provider_of(backend), PARTITIONS: str(partitions)}
    if savepoint.type is SavepointType.CANONICAL:  # its rows are spread by their whole key
        settings[STRICT_DISTRIBUTION] = "true"
    return settings


def fit_problems(
    spark: SparkSession,
    savepoint: SavepointRecord,
    placement: Placement,
    backend: StateBackend,
    partitions: int | None,
) -> list[str]:
    """Return why the placed operators cannot go onto this backend and number of partitions (None:
    the savepoint's), a line for each reason. The rows of a canonical savepoint go onto any number,
    and onto any backend that can hold them."""
    problems = []
    if savepoint.type is SavepointType.NATIVE:
        saved = log_version(
            open_files(spark, savepoint.uri, make=False), f"spark/commits/{savepoint.epoch}"
        )
        wanted = given_format(spark) or saved
        of_backend = savepoint.state_backend
        if backend.value != of_backend:
            problems.append(
                f"state_backend is {backend.value!r}, and its state is of {of_backend!r}"
            )
        if partitions not in (None, savepoint.partitions):
            problems.append(
                f"parallelism is {partitions}, and its state has {savepoint.partitions} partitions"
            )
        if wanted != saved:
            problems.append(f"{FORMAT} is {wanted}, and its state is of format {saved}")
    problems = [
        f"{problem}; a native savepoint is a copy of the state's files: leave that as it is, or "
        "take a savepoint of type canonical"
        for problem in problems
    ]
    if backend is StateBackend.HASHMAP:
        placed = [o for o in savepoint.operators if o.uid in placement.operators]
        problems += hashmap_problems(placed)
    return problems


def _new_format(spark: SparkSession, operators: Iterable[Operator]) -> int:
    """Return the format for the state of a new job: as `format_settings` has it."""
    families = (f for o in operators for store in o.stores for f in store.families)
    return given_format(spark) or 1 + any(IN_FLIGHT in family.name for family in families)


def find_damage(spark: SparkSession, savepoint: SavepointRecord) -> list[str]:
    """Return a line for each missing or altered file, beginning with its path. Reads every file."""
    files = open_files(spark, savepoint.uri, make=False)
    rows = {path for path in savepoint.files if path.startswith(("state/", "wal/"))}
    read = read_files(spark, files.uri, {path: savepoint.files[path][0] for path in rows})
    read = {path: of_file for path, of_file in read.items() if of_file[0] != MISSING}
    for path in savepoint.files.keys() - rows:
        try:
            data = files.read(path)
        except FileNotFoundError:
            continue
        read[path] = len(data), zlib.crc32(data)
    problems = []
    for path, known in sorted(savepoint.files.items()):
        if path not in read:
            problems.append(f"{files.uri}/{path}: missing")
        elif read[path][0] < 0:
            problems.append(f"{files.uri}/{path}: the file system's checksum does not match")
        elif tuple(read[path]) != tuple(known):
            problems.append(
                f"{files.uri}/{path}: it has {read[path][0]} bytes, which differ from the "
                f"{known[0]} that the savepoint was written with"
            )
    return problems


def restore_canonical(
    spark: SparkSession,
    savepoint: SavepointRecord,
    target: str,
    *,
    query_id: str,
    partitions: int | None = None,
    backend: StateBackend | None = None,
    placement: Placement | None = None,
    new_operators: Sequence[NewOperator] = (),
) -> None:
    """Make `target` a Spark checkpoint location that goes on after the savepoint's epoch.

    `savepoint`: without a finding of `find_damage` and `fit_problems`. `target`: a URI. `query_id`:
    of the new query, a UUID. `partitions`, `backend`: of the new state, None for the savepoint's
    own. `new_operators`: the new job's operators outside `placement`. ``commits/<epoch>`` is
    written last: without it the restore was cut off, and a repeated call with the same arguments
    completes it. With it, the call does nothing.

    Raises CheckpointError if the written rows are not the savepoint's.
    """
    files = open_files(spark, target)
    epoch = savepoint.epoch
    if files.exists(f"commits/{epoch}"):
        return
    placement = placement or Placement.unchanged(savepoint)
    backend = backend or StateBackend(savepoint.state_backend)
    partitions = partitions or savepoint.partitions
    source = open_files(spark, savepoint.uri, make=False)
    settings = new_settings(savepoint, backend, partitions)
    create(files, "metadata", json.dumps({"id": query_id}).encode())
    _write_sources(source, files, savepoint, placement, settings)
    commit = read_log(source, f"spark/commits/{epoch}")[0]
    if savepoint.drained:  # its watermark would make every later row late
        commit["nextBatchWatermarkMs"] = savepoint.watermark_ms
    saved_ids = commit.pop("stateUniqueIds", None) or {}
    placed = [o for o in savepoint.operators if o.uid in placement.operators]
    empty = [new.planned.describe(new.index) for new in new_operators]
    state = _NewState(spark, savepoint, files, settings, _new_format(spark, [*placed, *empty]))
    ids = {}
    for operator in placed:
        index = placement.operators[operator.uid]
        ids[str(index)] = state.write(operator, index, saved_ids.get(str(operator.index), []))
        failpoints.reached("state-restored")
    for new in new_operators:
        ids[str(new.index)] = state.write_empty(new)
    if ids := {index: of for index, of in ids.items() if any(map(any, of))}:
        commit["stateUniqueIds"] = ids
    create(files, f"commits/{epoch}", f"v{state.format}\n{compact_json(commit)}".encode())


def _write_sources(
    source: Directory,
    files: Directory,
    savepoint: SavepointRecord,
    placement: Placement,
    settings: Mapping[str, str],
) -> None:
    """Write the offset log, and the placed sources' own files."""
    uids = {s.index: s.uid for s in savepoint.sources}
    for path in savepoint.files:
        if path.startswith("spark/offsets/"):
            data = _offsets(source.read(path), savepoint, placement, settings)
            create(files, path.removeprefix("spark/"), data)
        elif match := _SOURCE_FILE.fullmatch(path):
            number = placement.sources.get(uids.get(int(match[2]), ""))
            if number is not None:
                name = placement.source_names.get(number, number)
                create(files, f"sources/{name}{match[3]}", source.read(path))


def _offsets(
    data: bytes, savepoint: SavepointRecord, placement: Placement, settings: Mapping[str, str]
) -> bytes:
    """Return an entry of the offset log for the new backend, partitions and order of sources."""
    version, metadata, *lines = undrained(data).decode().split("\n")
    body = json.loads(metadata)
    body["conf"].update(settings)
    by_number = dict(zip(savepoint.source_lines, lines, strict=True))
    offsets = {
        placement.sources[s.uid]: compact_json(placement.offsets[s.uid])
        if s.uid in placement.offsets
        else by_number[s.index]
        for s in savepoint.sources
        if s.uid in placement.sources
    }
    numbers = placement.source_lines or range(max(offsets, default=-1) + 1)
    new = [offsets.get(number, "-") for number in numbers]
    body.pop("sourceMetadataInfo", None)  # of version 2
    if names := placement.source_names:
        version, body["sourceMetadataInfo"] = "v2", {}
        new = [f"{names[number]}:{offset}" for number, offset in offsets.items()]
    if names or SOURCE_EVOLUTION in body["conf"]:
        body["conf"][SOURCE_EVOLUTION] = str(bool(names)).lower()
    return "\n".join([version, compact_json(body), *new]).encode()


class _NewState:
    """The state of a savepoint, on its way into the Spark checkpoint location `files`. `settings`
    are the new query's, as far as they differ from the savepoint's; `format_` is of state written
    as rows."""

    def __init__(
        self,
        spark: SparkSession,
        savepoint: SavepointRecord,
        files: Directory,
        settings: Mapping[str, str],
        format_: int,
    ) -> None:
        self._spark, self._savepoint, self._files = spark, savepoint, files
        self._partitions = int(settings[PARTITIONS])
        # A whole copy is written, whatever the query does later.
        self._settings = {**savepoint.settings, **settings, CHANGELOG: "false"}
        self._metadata = saved_metadata(spark, savepoint)
        saved = self._metadata.files
        self._described = {o.index: o for o in read_operators(saved, savepoint.epoch)}
        self._native = savepoint.type is SavepointType.NATIVE
        self.format = log_version(saved, f"commits/{savepoint.epoch}") if self._native else format_

    def _layout(self, described: str) -> StateLayout:
        classes, at = StateClasses.of(self._spark), self._files.uri
        settings = {**self._settings, **writing_settings(self._spark._jvm)}
        return StateLayout(self._spark, classes, described, at, settings, self.format)

    def write(self, operator: Operator, index: int, ids: list[list[str]]) -> list[list[str]]:
        """Write an operator's stores, with `index` as its number; return the unique ids by
        partition and store. `ids` belong to the savepoint's files."""
        epoch, count = self._savepoint.epoch, self._partitions if operator.keyed else 1
        moved = self._metadata.moved(operator.index, index, count, self._files.uri, epoch)
        for path, data in moved.items():
            create(self._files, path, data)
        if self._native:
            copy_back(self._spark, self._savepoint, operator, self._files.uri, index)
            return ids
        layout, info = self._layout(self._metadata.files.uri), self._described[operator.index]
        session = writing_session(self._spark)
        return _by_partition(
            self._write_rows(session, operator, store, layout.store(info, of, index).java, count)
            for store, of in zip(operator.stores, info.stores, strict=True)
        )

    def _write_rows(
        self, session: SparkSession, operator: Operator, store: Store, java: Any, partitions: int
    ) -> list[str]:
        at = f"restore of {self._savepoint.uri}"
        rows = read_rows(session, self._savepoint.row_files(store))
        try:
            written, ids = write_rows(
                rows,
                java,
                partitions,
                self._savepoint.epoch + 1,
                spark=session,
                ordered=any(family.several_values for family in store.families),
            )
        except (Py4JJavaError, CapturedException) as error:
            raise CheckpointError(
                f"{at}: the state of operator {operator.uid!r} ({operator.name}) cannot be "
                f"written: {root_cause(error)}"
            ) from error
        expected = sum(family.rows for family in store.families)
        if written != expected:
            raise CheckpointError(
                f"{at}: operator {operator.uid!r}, store {store.name!r}: {written} rows were "
                f"written; the savepoint has {expected}"
            )
        return ids

    def write_empty(self, new: NewOperator) -> list[list[str]]:
        """Write empty stores and the metadata of an operator; return the unique ids."""
        spark, epoch, planned = self._spark, self._savepoint.epoch, new.planned
        layout, info = self._layout(planned.location), planned.operators[new.index]
        count = self._partitions if planned.describe(new.index).keyed else 1
        moved = planned.metadata.moved(new.index, new.index, count, self._files.uri, epoch)
        for path, data in moved.items():
            create(self._files, path, data)
        return _by_partition(
            write_rows(
                None, layout.store(info, store).java, count, epoch + 1, spark=spark, ordered=False
            )[1]
            for store in info.stores
        )


def _by_partition(by_store: Iterable[list[str]]) -> list[list[str]]:
    return [list(of_partition) for of_partition in zip(*by_store, strict=True)]


def saved_metadata(spark: SparkSession, savepoint: SavepointRecord) -> StateMetadata:
    """Return the metadata of a savepoint's state."""
    paths = (
        path.removeprefix("spark/") for path in savepoint.files if path.startswith("spark/state/")
    )
    return StateMetadata(
        open_files(spark, f"{savepoint.uri}/spark", make=False),
        tuple(metadata_at(paths, savepoint.epoch)),
        savepoint.epoch,
    )
