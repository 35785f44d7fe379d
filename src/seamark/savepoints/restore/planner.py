"""Makes the restore plan: the common parts of an origin and a job, and the problems.

Nothing is written except a scratch directory on this machine. `prepare` is the one way in:
`write.py` does what it plans, and `Job.restore_plan` shows it.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.config import StateBackend
from seamark.checkpoint.store import CheckpointStore
from seamark.files.location import storage_uri
from seamark.model.errors import (
    ConfigurationError,
    DamagedCheckpointError,
    RecordNotStoredError,
    RestoreError,
    SavepointError,
    SeamarkError,
)
from seamark.run.start_checks import other_values, values_go_by
from seamark.savepoints.record import (
    NOT_KNOWN,
    SAVEPOINT,
    TAKING,
    ColumnFamily,
    Operator,
    read_savepoint,
)
from seamark.savepoints.restore.from_checkpoint import CheckpointOrigin
from seamark.savepoints.restore.from_savepoint import SavepointOrigin
from seamark.savepoints.restore.lineage import (
    Place,
    driver_of,
    find_place,
    problems,
    superseded,
    warnings,
)
from seamark.savepoints.restore.location import NewOperator
from seamark.savepoints.restore.options import NewJob, new_side
from seamark.savepoints.restore.origin import Origin, Parts
from seamark.savepoints.restore.plan import Action, OperatorPlan, RestorePlan, Side, SourcePlan
from seamark.savepoints.restore.target import read_marker
from seamark.savepoints.state.layout import STATE_ENCODING, hashmap_problems
from seamark.savepoints.state.planned import (
    PlannedState,
    differing,
    misread,
    schema_text,
    scratch,
)
from seamark.spark.hadoop_files import open_files
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.state_backend import PARTITIONS


@dataclass(frozen=True)
class Prepared:
    """A plan, with everything its execution needs. `origin` is None if it is damaged. `begun`: the
    decisions of an interrupted restore. `failure` says more than `plan.problems`."""

    plan: RestorePlan
    origin: Origin | None = None
    parts: Parts = field(default_factory=lambda: Parts((), ()))
    begun: Mapping[str, Any] | None = None
    failure: SeamarkError | None = None

    def require(self) -> Origin:
        """Return the origin; raise the problems that stop the restore, if there are any."""
        if self.failure is not None:
            raise self.failure
        if problems := self.plan.problems:
            shown = problems[0] if len(problems) == 1 else "".join(f"\n  - {p}" for p in problems)
            raise RestoreError(
                f"restore: {self.plan.path} does not fit job {self.plan.target.name!r}; nothing "
                f"was written: {shown}"
            )
        assert self.origin is not None
        return self.origin


@contextmanager
def storages_answer(path: str, job: NewJob) -> Iterator[None]:
    """Raise RecordNotStoredError for a storage that fails in this context, of the restore of
    `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SeamarkError):
            raise
        raise RecordNotStoredError(
            f"restore of {path} into {job.directory}: {error}. Nothing is lost: see that both can "
            "be reached from here, and begin it again, which goes on from what was copied"
        ) from error


def plan_restore(
    spark: SparkSession, path: str, job: NewJob, *, into_directory: bool = True
) -> RestorePlan:
    """Plan the restore of `path` into the job. Without `into_directory` nothing in the job's
    directory is a problem: the job may run there at this moment.

    Raises RestoreError, SavepointError or CorruptRecordError if nothing can be read at `path`, and
    RecordNotStoredError.
    """
    path = storage_uri(path, "restore")
    with storages_answer(path, job):
        place = find_place(spark, path, job)
        if into_directory and (restored := place.restored_from(path)) is not None:
            return _already_there(place.current or restored, restored, path, job)
        with prepare(spark, path, job, place, into_directory=into_directory) as prepared:
            return prepared.plan


def write_plan(spark: SparkSession, path: str | None, job: NewJob, file: Path) -> None:
    """Write the plan as JSON into `file`, for ``seamark run --plan``. Raises ConfigurationError if
    there is no path; otherwise as `plan_restore`."""
    if not path:
        raise ConfigurationError(
            f"Job {job.name!r}: nothing says what the plan is to be of; give the path of a "
            "savepoint or a retained checkpoint: -s PATH"
        )
    file.write_text(json.dumps(plan_restore(spark, path, job).to_json()), encoding="utf-8")


@contextmanager
def prepare(
    spark: SparkSession, path: str, job: NewJob, place: Place, *, into_directory: bool = True
) -> Iterator[Prepared]:
    """Prepare the restore of `path`, a URI, into the job at `place`, by `find_place`; the result is
    valid within the ``with``. Raises as `plan_restore` does."""
    begun, hindrances, seen = None, list[str](), list[str]()
    if into_directory:
        try:
            begun = read_marker(place.target, path)
        except RestoreError as error:
            hindrances.append(str(error))
        if place.current is not None:
            driver = driver_of(job, place.current)
            hindrances += problems(job, place.current, driver)
            seen += warnings(place.current, driver)
    with scratch() as directory:
        try:
            origin = _open_origin(spark, path, job, begun)
            prepared = _Planning(spark, origin, job, directory).prepared()
        except DamagedCheckpointError as error:
            plan = _no_plan(path, "checkpoint", job, 0, error.problems or (str(error),))
            prepared = Prepared(plan, failure=error)
        plan, whole = prepared.plan, prepared.origin
        if place.current is not None and whole is not None:
            plan = replace(
                plan, supersedes=(old := superseded(place.current, whole, place.earlier))
            )
            seen.insert(0, old.warning())
        yield replace(
            prepared,
            begun=begun,
            plan=replace(
                plan,
                path=path,
                target=replace(plan.target, directory=place.target.uri),
                warnings=(*seen, *plan.warnings),
                problems=(*hindrances, *plan.problems),
            ),
        )


def _open_origin(
    spark: SparkSession, path: str, job: NewJob, begun: Mapping[str, Any] | None
) -> Origin:
    files = open_files(spark, path, make=False)
    if files.exists(SAVEPOINT) or files.exists(TAKING):
        try:
            savepoint = read_savepoint(files)
        except SavepointError as error:
            raise RestoreError(f"restore: {error}") from None
        return SavepointOrigin(spark, savepoint, job, begun)
    try:
        return CheckpointOrigin(spark, path, job, begun)
    except NotADirectoryError:
        raise RestoreError(
            f"restore: {path} is a file; give the directory of a savepoint, of a job or of an epoch"
        ) from None


def _already_there(
    target: CheckpointStore, restored: CheckpointStore, path: str, job: NewJob
) -> RestorePlan:
    identity = restored.read_identity()
    plan = _no_plan(path, "savepoint", job, job.partitions or 0)
    source = replace(plan.source, epoch=(identity.restored_from or {}).get("epoch"))
    warning = (
        f"{restored.uri} was restored from this path already: the job goes on in {target.uri} "
        f"after its own epoch {target.latest_decision()}, and {path} is not read"
    )
    there = replace(plan.target, directory=target.uri)
    return replace(plan, restored=True, source=source, target=there, warnings=(warning,))


def _no_plan(
    path: str, kind: str, job: NewJob, partitions: int, problems: tuple[str, ...] = ()
) -> RestorePlan:
    """Return a plan without any parts."""
    return RestorePlan(
        path=path,
        kind=kind,
        format=None,
        source=Side("", "", 0),
        target=new_side(job, partitions),
        claim_mode=job.claim_mode,
        problems=problems,
    )


class _Planning:
    """The plan of one origin and one program; `directory` is scratch."""

    def __init__(self, spark: SparkSession, origin: Origin, job: NewJob, directory: Path) -> None:
        self._spark, self._origin, self._job, self._directory = spark, origin, job, directory
        self._uids = job.program.uids
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def prepared(self) -> Prepared:
        origin, job, uids = self._origin, self._job, self._uids
        self._problems += origin.problems()
        wanted = self._planned() if origin.failure is None else None
        parts = origin.parts(wanted)
        refused = self._refused(parts, wanted) if wanted is not None else set[int]()
        partitions = int(origin.settings[PARTITIONS])
        placed = set(parts.numbers.values())
        if wanted is not None:
            self._problems += (
                f"operator {uids.of_operator(index)!r} is new, and Spark gives an operator its "
                "initialState in the first epoch of a query alone: it would begin empty. Leave "
                "initialState out, and write it into a savepoint of that job: Savepoint.with_state "
                "(docs/how-to/edit-a-savepoint.md)"
                for index in sorted(wanted.with_initial_state - placed)
            )
        here = {source.uid for source, number in parts.sources if number is not None}
        plan = RestorePlan(
            path="",
            kind=origin.kind,
            format=origin.format,
            source=origin.state,
            target=new_side(job, partitions),
            claim_mode=job.claim_mode,
            operators=(
                *(
                    self._operator(operator, number, partitions, wanted, refused)
                    for operator, number in parts.operators
                ),
                *(
                    OperatorPlan(
                        uids.of_operator(index),
                        index in uids.operators,
                        wanted.operators[index].name if wanted is not None else "",
                        Action.NEW,
                    )
                    for index in range(uids.operator_count)
                    if index not in placed
                ),
            ),
            sources=(
                *(
                    SourcePlan(
                        source.uid,
                        source.uid != f"source-{source.index}",
                        Action.DROPPED if number is None else Action.MAPPED,
                        source.offset,
                    )
                    for source, number in parts.sources
                ),
                *(
                    SourcePlan(uid, index in uids.sources, Action.NEW)
                    for uid, index in uids.source_numbers().items()
                    if uid not in here
                ),
            ),
            sinks=tuple(origin.sinks()),
            warnings=(
                *_unnamed_warnings(uids),
                *self._warnings,
                *origin.warnings(),
                *other_values(origin.values_by, values_go_by(self._spark)),
            ),
            problems=tuple(self._problems),
        )
        if wanted is not None:
            new = [NewOperator(index, wanted) for index in sorted(wanted.operators.keys() - placed)]
            parts = replace(parts, new_operators=new)
        return Prepared(plan, origin, parts, failure=origin.failure)

    def _planned(self) -> PlannedState | None:
        """Let Spark plan the program; None if it cannot."""
        origin = self._origin
        try:
            return PlannedState(
                self._spark,
                self._job.program,
                origin.settings,
                self._directory,
                watermark_ms=origin.watermark_ms,
            )
        except RestoreError as error:
            self._problems.append(str(error))
            return None

    def _refused(self, parts: Parts, wanted: PlannedState) -> set[int]:
        """Note the operators that cannot go on from their state, or cannot begin empty; return the
        old numbers of the former."""
        if misfits := list(self._origin.misfits(parts, wanted)):
            self._problems += misfits
            return set()
        said, taken = {}, {}
        for operator, number in parts.operators:
            if number is None:
                continue
            if (type_ := wanted.operators[number].name) != operator.name:
                said[operator.index] = (
                    f"the savepoint has state of {operator.name} for operator {operator.uid!r}, "
                    f"which is {type_} in the program; give one of another type a uid of its own"
                )
            else:
                taken[operator.index] = number
        refusals = wanted.refusals(self._origin.metadata(), taken)
        by_name = self._origin.settings.get(STATE_ENCODING) == "avro"
        for operator, number in parts.operators:
            if number is None or operator.index not in taken:
                continue
            changes = differing(operator.stores, wanted.describe(number).stores)
            what = f"operator {operator.uid!r} ({operator.name})"
            if number in refusals:
                why = f"Spark cannot go on with its state in the program: {refusals[number]}"
            elif by_name and wanted.operators[number].is_transform_with_state:
                continue
            elif misread(operator.name, changes):
                why = (
                    "the program would read its state as something else, as Spark goes by the "
                    "types and places of its columns alone"
                )
            else:
                self._warnings += (
                    f"{what}: {_change(*change)}. Spark takes this for other names of the same "
                    "columns; if they are other columns, give the operator another uid"
                    for change in changes
                    if None not in change
                )
                continue
            differ = "; ".join(_change(*change) for change in changes)
            said[operator.index] = (
                f"{what}: {why} ({differ or 'columns that were never null may be null now'}). Undo "
                "the change, or give the operator another uid: it then begins empty"
            )
        self._problems += said.values()
        if self._job.backend is StateBackend.HASHMAP:
            new = wanted.operators.keys() - set(parts.numbers.values())
            self._problems += hashmap_problems(map(wanted.describe, sorted(new)))
        return set(said)

    def _operator(
        self,
        operator: Operator,
        number: int | None,
        partitions: int,
        wanted: PlannedState | None,
        refused: Collection[int],
    ) -> OperatorPlan:
        evolved = repartitioned = converted = False
        if number is not None:
            repartitioned = operator.keyed and operator.partitions != partitions
            converted = self._origin.state.state_backend != self._job.backend.value
            if wanted is not None and operator.index not in refused:
                evolved = bool(differing(operator.stores, wanted.describe(number).stores))
        return OperatorPlan(
            operator.uid,
            operator.uid != f"operator-{operator.index}",
            operator.name,
            Action.DROPPED if number is None else Action.MAPPED,
            repartitioned,
            converted,
            evolved,
            None if operator.rows == NOT_KNOWN else operator.rows,
            self._origin.bytes_of(operator),
        )


def _change(name: str, old: ColumnFamily | None, new: ColumnFamily | None) -> str:
    if old is None or new is None:
        return f"state {name!r} is {'gone' if new is None else 'new'}"
    schemas = (
        ("key", old.key_schema, new.key_schema),
        ("value", old.value_schema, new.value_schema),
    )
    return f"state {name!r}: " + ", ".join(
        f"its {part} was {schema_text(before)} and is {schema_text(after)} now"
        for part, before, after in schemas
        if schema_text(before) != schema_text(after)
    )


def _unnamed_warnings(uids: OperatorUids) -> tuple[str, ...]:
    """Name the operators and sources found by their number alone."""
    unnamed = [
        *(f"operator {uids.of_operator(n)!r}: name it with job.uid(dataframe, 'a-name')"
          for n in range(uids.operator_count) if n not in uids.operators),
        *(f"source {uid!r}: name it with job.source(stream, uid='a-name')"
          for uid, n in uids.source_numbers().items() if n not in uids.sources),
    ]  # fmt: skip
    return tuple(
        f"{what}; without a uid it is found by its number, which changes with the program"
        for what in unnamed
    )
