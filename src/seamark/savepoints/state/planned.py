"""The state that a program needs, and Spark's answer whether another job's state fits it.

Spark writes and checks the metadata and the schemas of the state while it plans a query's first
epoch. So a program's query is planned, and not run, in scratch checkpoint locations on this
machine: once as if all its operators were new (`PlannedState`), and once over the state's metadata
to be restored (`PlannedState.refusals`). `restore/planner.py` asks, and `restore/location.py` takes
the metadata of new operators from here.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from seamark.checkpoint.spark_files import METADATA_VERSION, StateTree, metadata_at
from seamark.files import Directory
from seamark.model.errors import RestoreError
from seamark.savepoints.record import ColumnFamily, Operator, Store
from seamark.savepoints.state.layout import StateLayout, read_operators, relocated
from seamark.savepoints.state.rows import StateClasses
from seamark.spark.hadoop_files import open_files
from seamark.spark.java_calls import root_cause
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.planned_query import refuse_unsupported
from seamark.spark.plans import analysed, java_plans, nodes
from seamark.spark.state_backend import PARTITIONS

PLAN_TRIES = 3
SESSION_WINDOWS = "sessionWindowStateStoreSaveExec"
AGGREGATIONS = ("stateStoreSave", SESSION_WINDOWS)
_OPERATOR_FILE = re.compile(r"state/(\d+)(/.*)")


@dataclass(frozen=True)
class Program:
    """The query of a job as it would be started: one DataFrame for all its sinks."""

    stream: DataFrame
    output_mode: str
    uids: OperatorUids


@dataclass(frozen=True)
class StateMetadata:
    """The metadata of a state as of `epoch`, below the checkpoint location `files`: `paths` are its
    files there, ``state/<operator>/…``."""

    files: Directory
    paths: tuple[str, ...]
    epoch: int

    @staticmethod
    def of(files: Directory, epoch: int) -> "StateMetadata":
        """Find it in a checkpoint location, or in the ``spark`` directory of a savepoint."""
        paths = (path for path in StateTree.read(files).metadata if not path.endswith(".crc"))
        return StateMetadata(files, tuple(metadata_at(paths, epoch)), epoch)

    def moved(
        self, old: int, new: int, partitions: int, location: str, epoch: int | None = None
    ) -> dict[str, bytes]:
        """Return the files of operator `old` as files of operator `new`, with `partitions` state
        partitions, in the checkpoint location with the URI `location`, by path below it. `epoch`:
        the oldest epoch committed there. Spark would delete the metadata of an older one."""
        moved = {}
        for path in self.paths:
            match = _OPERATOR_FILE.fullmatch(path)
            if match is None or int(match[1]) != old:
                continue
            data, name = self.files.read(path), match[2]
            if epoch is not None and METADATA_VERSION.fullmatch(path):
                name = f"/_metadata/v2/{epoch}"
            if match[2] == "/_metadata/metadata" or match[2].startswith("/_metadata/v2/"):
                data = relocated(data, location, new, partitions)
            moved[f"state/{new}{name}"] = data
        return moved


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a directory for checkpoint locations whose query is only planned."""
    path = Path(tempfile.mkdtemp(prefix="seamark-plan-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class PlannedState:
    """The state of a program's operators, as Spark would make it if they were all new.

    `settings` are Spark's of the query, as its offset log will hold them; `watermark_ms` is the
    watermark of the epoch before. Planning takes some hundred milliseconds, and seconds for a
    `transformWithState`: Spark starts a Python process for it. Raises RestoreError with Spark's
    message if it cannot plan the query. A `PlannedState` lasts as long as `directory`, its scratch.
    """

    def __init__(
        self,
        spark: SparkSession,
        program: Program,
        settings: Mapping[str, str],
        directory: Path,
        *,
        watermark_ms: int = 0,
    ) -> None:
        self._spark = spark
        self._program = program
        self._settings = dict(settings)
        self._watermark_ms = watermark_ms
        self._directory = directory
        self.location = self._new_location()
        try:
            refuse_unsupported(program.stream, program.output_mode)
            planned = self._plan(self.location, 0)
        except (Py4JJavaError, PySparkException) as error:
            raise RestoreError(f"Spark cannot run this program: {root_cause(error)}") from error
        files = open_files(spark, self.location)
        self.metadata = StateMetadata.of(files, 0)
        self.operators = {o.index: o for o in read_operators(files, 0)}
        """By Spark's number."""
        self.with_initial_state = {
            int(node.getStateInfo().operatorId())
            for node in nodes(planned, "TransformWithState")
            if node.hasInitialState()
        }
        """The numbers of those with an `initialState`, which Spark gives in epoch 0 alone."""
        self._layout = StateLayout(
            spark, StateClasses.of(spark), self.location, self.location, self._settings, 1
        )

    def describe(self, index: int) -> Operator:
        """Return an operator with the schemas of its state, without rows."""
        return self._layout.operator(self.operators[index], self._program.uids)[0]

    def refusals(self, old: StateMetadata, placed: Mapping[int, int]) -> dict[int, str]:
        """Return Spark's objections to going on from another job's state, by the operator's number
        in this program; {} if there are none. `placed`: new numbers here by old ones there. An
        objection to several operators only together is put under the first."""
        if not placed or (reason := self._refusal(old, placed)) is None:
            return {}
        # Spark stops at the first unfit operator without its name: ask one by one.
        each = {
            new: refusal
            for number, new in placed.items()
            if (refusal := self._refusal(old, {number: new})) is not None
        }
        return each or dict.fromkeys(list(placed.values())[:1], reason)

    def _refusal(self, old: StateMetadata, placed: Mapping[int, int]) -> str | None:
        location, partitions = self._new_location(), int(self._settings[PARTITIONS])
        files = open_files(self._spark, location)
        moved = [
            *(old.moved(number, index, partitions, location) for number, index in placed.items()),
            *(
                self.metadata.moved(index, index, partitions, location)
                for index in self.operators.keys() - set(placed.values())
            ),
        ]
        for path, data in (item for operator in moved for item in operator.items()):
            files.create(path, data)
        try:
            self._plan(location, old.epoch + 1)
        except (Py4JJavaError, PySparkException) as error:
            return root_cause(error)
        return None

    def _new_location(self) -> str:
        return f"file://{tempfile.mkdtemp(dir=self._directory)}"

    def _plan(self, location: str, epoch: int) -> Any:
        """Let Spark plan an epoch of the query, the first one of a run, over the content of
        `location`; return the plan that would run. Raises Spark's error."""
        for _ in range(PLAN_TRIES - 1):
            try:
                return self._plan_once(location, epoch)
            except Py4JJavaError as error:
                # Spark gives the Python worker of a transformWithState ten seconds to start.
                if "connect back" not in str(error):
                    raise
        return self._plan_once(location, epoch)

    def _plan_once(self, location: str, epoch: int) -> Any:
        entry = {
            "batchWatermarkMs": self._watermark_ms,
            "batchTimestampMs": 0,
            "conf": self._settings,
        }
        # Spark writes this entry before it plans, and then looks for the last one.
        files = open_files(self._spark, location)
        if not files.exists(f"offsets/{epoch}"):
            files.create(f"offsets/{epoch}", f"v1\n{json.dumps(entry)}".encode())
        program = self._program
        return (
            java_plans()
            .epoch(
                self._spark._jsparkSession,
                analysed(program.stream),
                program.output_mode,
                f"{location}/state",
                epoch,
                json.dumps(entry),
            )
            .executedPlan()
        )


Change = tuple[str, ColumnFamily | None, ColumnFamily | None]
"""A column family by name, in another job's state and in the program's; None where it is not."""


def differing(old: Sequence[Store], new: Sequence[Store]) -> list[Change]:
    """Return the column families with another schema in `new`, by name, with both; or None."""
    before, after = _families(old), _families(new)
    return [
        (name, before.get(name), after.get(name))
        for name in {**before, **after}
        if _schemas(before.get(name)) != _schemas(after.get(name))
    ]


def misread(operator: str, changes: Sequence[Change]) -> bool:
    """Tell whether columns that Spark takes for the same, by type and place, are others for sure:
    one has another place, those of a join's other side stand in their place, or an aggregation,
    whose values Spark names after its functions, has another function."""
    both = [(old, new) for _, old, new in changes if old is not None and new is not None]
    before = [_names(old.value_schema) for old, _ in both]
    for old, new in both:
        was, now = _names(old.value_schema), _names(new.value_schema)
        # A session's value begins with the columns of its key.
        functions = len(old.key_schema["fields"]) if operator == SESSION_WINDOWS else 0
        if was != now and (
            now in before or (operator in AGGREGATIONS and was[functions:] != now[functions:])
        ):
            return True
        if _moved(old.key_schema, new.key_schema) or _moved(old.value_schema, new.value_schema):
            return True
    return False


def _names(schema: Any) -> list[str]:
    return [field["name"] for field in schema["fields"]]


def _moved(old: Any, new: Any) -> bool:
    """Tell whether a column of a type's structs has another place in the other type."""
    if not (isinstance(old, dict) and isinstance(new, dict) and "fields" in old):
        return False
    before, after = _names(old), _names(new)
    return any(name in after and name != after[i] for i, name in enumerate(before)) or any(
        _moved(f["type"], g["type"]) for f, g in zip(old["fields"], new["fields"], strict=False)
    )


def _families(stores: Sequence[Store]) -> dict[str, ColumnFamily]:
    """Return column families by name, with their store's name if there are several."""
    return {
        family.name if len(stores) == 1 else f"{store.name}/{family.name}": family
        for store in stores
        for family in store.families
    }


def _schemas(family: ColumnFamily | None) -> Any:
    return family and (schema_text(family.key_schema), schema_text(family.value_schema))


def schema_text(schema: Any) -> str:
    """Return a struct's JSON as Spark writes its type in DDL."""
    return str(StructType.fromJson(schema).simpleString())
