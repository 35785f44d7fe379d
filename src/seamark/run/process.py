"""`sm.process`: a slow function without state, which an unaligned epoch interrupts.

Its result is a Spark operator like any other. But a sink that is given this result as it is takes
the function's *input* in the job's stream, and the sink's tasks call the function on each slice of
rows before they write (`pre_commit.py`). So the deadline holds for the function too, and rows that
it has not seen are the task's channel state (docs/unaligned.md).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from seamark.api.checks import one_of
from seamark.api.declarations import DeclaredSink
from seamark.model.errors import ConfigurationError
from seamark.model.schema import quoted
from seamark.run.python_values import taking
from seamark.spark.plan_functions import AsGiven
from seamark.spark.session import require_stream, spark_schema
from seamark.spark.spark_versions import arrow_schema

ZONED = 'ype":"timestamp"'
"""In the JSON of a schema: a column, or a part of one, is a TIMESTAMP. A name has no such text, as
JSON escapes its quotes, and TIMESTAMP_NTZ has no zone."""
_MODES = ("batch", "row")
_MARK = "_seamark_process"
_NO_KEY = "CAST(NULL AS BINARY) AS key"
_DIRECT = re.compile(
    r"(?:CAST\()?(?P<column>`(?:[^`]|``)+`)(?: AS (?P<type>BINARY)\))?(?: AS `?(?P<name>\w+)`?)?"
)
"""The SQL that a task can do on a column in Arrow: take it, name it, cast it to bytes."""


@dataclass(frozen=True)
class Process:
    """A function over the rows of `source`, and the shape of its result. `columns` has, for each
    column of the sink, the result's column ("" for nulls), its name for the sink, and whether it
    becomes bytes."""

    uid: str
    function: Callable[[Any], Any]
    mode: str
    schema: pa.Schema
    columns: tuple[tuple[str, str, bool], ...] = ()

    def results(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the function's results for the batch. Raises the function's error, and TypeError
        for a result of another type or shape."""
        if self.mode == "row":
            rows = [one for row in batch.to_pylist() for one in _listed(self.function(row))]
            for row in rows:
                self._require_all(row)  # Arrow would take null for a missing one
            if rows:
                takes = [(c.name, taking(c.type, f"process {self.uid!r}: {c.name}"))
                         for c in self.schema]  # fmt: skip
                rows = [{name: take(row[name]) if take else row[name] for name, take in takes}
                        for row in rows]  # fmt: skip
                yield pa.RecordBatch.from_pylist(rows, self.schema)
            return
        given = self.function(batch)
        for result in [given] if isinstance(given, pa.RecordBatch) else given or ():
            if not isinstance(result, pa.RecordBatch):
                raise TypeError(
                    f"process {self.uid!r}: the function gave {type(result).__name__}; give a "
                    "pyarrow.RecordBatch, or several"
                )
            self._require_all(result.schema.names)
            result = result.select(self.schema.names)
            for given, wanted in zip(result.schema, self.schema, strict=True):
                if not _fits(given.type, wanted.type):
                    raise TypeError(
                        f"process {self.uid!r}: column {given.name} has {given.type}, where the "
                        f"schema has {wanted.type}; give that type"
                    )
            yield result.cast(self.schema)

    def _require_all(self, names: Collection[str]) -> None:
        if missing := [name for name in self.schema.names if name not in names]:
            raise TypeError(
                f"process {self.uid!r}: the function's result lacks the columns "
                f"{', '.join(missing)} of the schema; it has {', '.join(names)}"
            )

    def for_sink(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results for the batch, with the sink's columns."""
        for result in self.results(batch):
            taken = []
            for column, _, as_bytes in self.columns:
                values = result.column(column) if column else pa.nulls(result.num_rows)
                taken.append(values.cast(pa.binary()) if as_bytes else values)
            yield pa.RecordBatch.from_arrays(taken, [name for _, name, _ in self.columns])


def process(
    dataframe: DataFrame,
    function: Callable[[Any], Any],
    schema: str | StructType,
    *,
    uid: str,
    mode: str = "batch",
) -> DataFrame:
    """Return the rows that a slow function makes of a stream's, without state: a model, a lookup.

    schema: the columns of the result, as DDL (``"id BIGINT, score DOUBLE"``) or a StructType.
    uid: its name in messages.
    mode: ``"batch"``: the function takes a `pyarrow.RecordBatch` and returns one, several, or None.
        ``"row"``: it takes a dict and returns a dict, several, or None. It is called for slices of
        a batch, and again for the same rows after a failure.

    Give the result to sinks as it is, and unaligned epochs interrupt the function
    (docs/unaligned.md). A step of Spark's behind it, e.g. a ``select``, makes it an operator of
    Spark's, which is never interrupted. Each sink calls the function itself. Raises
    ConfigurationError.
    """
    require_stream(dataframe, f"process {uid!r}")
    if not callable(function):
        raise ConfigurationError(f"process {uid!r}: function is {function!r}; give a function")
    one_of(mode, _MODES, f"process {uid!r}: mode")
    zone = str(dataframe.sparkSession.conf.get("spark.sql.session.timeZone"))
    columns = columns_of(schema, f"process {uid!r}")
    made = Process(uid, AsGiven(function), mode, arrow_schema(columns, zone))
    named = {"schema": made.schema.names}
    if mode == "row":  # whose dicts keep one of two columns of a name
        named["input"] = dataframe.columns
    for what, names in named.items():
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigurationError(
                f"process {uid!r}: its {what} has the column {twice[0]!r} twice; rename one"
            )
    if mode == "row" and (ZONED in dataframe.schema.json() or ", tz=" in str(made.schema)):
        check_zone(zone, f"process {uid!r}", ", or take mode='batch'")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from made.results(batch)

    result = dataframe.mapInArrow(run, schema)
    vars(result)[_MARK] = (dataframe, made)
    return result


def interruptible(declared: DeclaredSink) -> DeclaredSink:
    """Return a declared sink that takes the function's input, if its DataFrame is the result of
    `process` as it is, and a task can make the sink's columns from the result."""
    mark = vars(declared.dataframe).get(_MARK)
    columns = _direct(declared.select_expressions) if mark else None
    if mark is None or columns is None:
        return declared
    source, made = mark
    texts = (pa.string(), pa.binary())
    if any(
        as_bytes and column and made.schema.field(column).type not in texts
        for column, _, as_bytes in columns
    ):
        return declared
    names = tuple(quoted(name) for name, _ in spark_schema(source))
    bound = replace(made, columns=columns)
    return replace(declared, dataframe=source, select_expressions=names, process=bound)


def _direct(expressions: Sequence[str]) -> tuple[tuple[str, str, bool], ...] | None:
    columns = []
    for expression in expressions:
        if expression == _NO_KEY:
            columns.append(("", "key", True))
            continue
        match = _DIRECT.fullmatch(expression)
        if match is None or expression.startswith("CAST(") != bool(match["type"]):
            return None
        column = match["column"][1:-1].replace("``", "`")
        columns.append((column, match["name"] or column, bool(match["type"])))
    return tuple(columns)


def columns_of(schema: str | StructType, what: str) -> StructType:
    """Return the columns of DDL text. Raises ConfigurationError; `what` names whose they are."""
    try:
        return schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    except Exception as error:
        raise ConfigurationError(
            f"{what}: schema is {schema!r}, which is no list of columns "
            f"({str(error).splitlines()[0]}); give e.g. 'id BIGINT, name STRING'"
        ) from None


def check_zone(zone: str, what: str, other_remedy: str = "") -> None:
    """Raise ConfigurationError for a time zone whose name is Java's alone, such as GMT+8 or PST."""
    try:
        pa.scalar(0, pa.timestamp("us", zone)).as_py()
    except Exception:
        raise ConfigurationError(
            f"{what}: spark.sql.session.timeZone is {zone!r}, a name that Python does not know, "
            "and the function takes timestamps as Python's; set a region such as 'Asia/Shanghai' "
            f"or an offset such as '+08:00'{other_remedy}"
        ) from None


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a cast keeps each value or fails. Arrow takes a number for microseconds, a time
    without a zone for UTC's, a date for midnight, 0.5 for true, and null for a field that a struct
    lacks; it rounds a double to a decimal."""
    if pa.types.is_null(given):
        return True
    if pa.types.is_temporal(given) or pa.types.is_temporal(wanted):
        zones = [getattr(kind, "tz", None) is not None for kind in (given, wanted)]
        return bool(given.id == wanted.id and zones[0] == zones[1])
    if pa.types.is_boolean(wanted):
        return bool(pa.types.is_boolean(given))
    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        there = {part.name: part.type for part in given}
        return all(part.name in there and _fits(there[part.name], part.type) for part in wanted)
    if pa.types.is_decimal(wanted) and pa.types.is_floating(given):
        return False
    return all(  # the cast refuses other shapes
        _fits(given.field(i).type, wanted.field(i).type)
        for i in range(min(given.num_fields, wanted.num_fields))
    )


def _listed(result: Any) -> list[dict[str, Any]]:
    if result is None:
        return []
    return [result] if isinstance(result, dict) else list(result)
