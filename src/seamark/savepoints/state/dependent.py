"""Dependent state: makes the parts of a state that follow from a given part.

Beside a user's values Spark keeps counts and indexes by time for some state, each in a column
family or a store of its own. `edit/state.py` and `edit/bootstrap.py` write the frames from
`with_dependents`. It goes by Spark's own definitions (`SymmetricHashJoinStateManager`, `TTLState`,
`ListStateMetricsImpl`, `TimerStateImpl`, `StreamingSessionWindowStateManager`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from seamark.model.errors import SavepointError
from seamark.model.schema import quoted
from seamark.savepoints.record import ColumnFamily, Operator, Store
from seamark.spark.java_calls import java_class
from seamark.spark.plans import CATALYST, analysed, items

Frames = dict[tuple[str, str], DataFrame]
"""Columns `key` and `value`, and `sequence` if a key has several values, by the names of the store
and of the column family."""

_ALONE = (
    "stateStoreSave",
    "dedupe",
    "dedupeWithinWatermark",
    "globalLimit",
    "flatMapGroupsWithState",
    "applyInPandasWithState",
)
_JOIN, _SESSION, _TRANSFORM = "symmetricHashJoin", "sessionWindow", "transformWithState"
ROWS_OF_JOIN, _COUNTS_OF_JOIN = "-keyWithIndexToValue", "-keyToNumValues"
"""Endings of a join's store names: for its rows, and for the number of rows of a key."""
_ROW_COUNTER = "$rowCounter"
_TIMERS, _TIMER_INDEX = "_keyToTimestamp", "_timestampToKey"


_schema = StructType.fromJson


def why_not(operator: Operator, store: Store, family: ColumnFamily) -> str:
    """Return why rows cannot be given for this part of an operator's state, "" if they can."""
    if operator.name.startswith((*_ALONE, _SESSION)):
        return ""
    if operator.name.startswith(_JOIN):
        if store.name.endswith(ROWS_OF_JOIN):
            return ""
        if store.name.endswith(_COUNTS_OF_JOIN):
            side = store.name.removesuffix(_COUNTS_OF_JOIN)
            return f"it follows from the rows; give those, store={side + ROWS_OF_JOIN!r}"
        return "this state format of joins is not known here"
    if not operator.name.startswith(_TRANSFORM):
        return "this type of operator is not known here"
    if family.kind == "index" or family.name.endswith(_TIMER_INDEX):
        return "it follows from the state that it is an index of; give that"
    unknown = [f.name for f in _indexes(store, family) if _index_of(f.name) not in _INDEXES]
    return f"its index {unknown[0]!r} is not known here" if unknown else ""


def with_dependents(
    at: str, operator: Operator, store: Store, family: ColumnFamily, state: DataFrame
) -> Frames:
    """Return all frames to be written if this family's rows are to be `state`, in the family's
    columns. They include `state` itself, in Spark's own form. Raises SavepointError, with the
    savepoint's name `at`, if `state` contradicts itself."""
    if operator.name.startswith(_SESSION):
        _require_sessions(f"savepoint {at}: operator {operator.uid!r}", family, state)
    state = _normalised(operator, family, state)
    if operator.name.startswith(_JOIN):
        return _join(operator, store, family, _fixed(state))
    if family.kind == "timer":
        state = _fixed(state)
        name = family.name.removesuffix(_TIMERS) + _TIMER_INDEX
        (index,) = (f for f in store.families if f.name == name)
        parts = [F.col("key").getField(field) for field in _schema(index.key_schema).fieldNames()]
        timers = state.select(_struct(index.key_schema, parts, "key"), "value")
        return {(store.name, family.name): state, (store.name, name): timers}
    indexes = _indexes(store, family) if operator.name.startswith(_TRANSFORM) else []
    if indexes:
        state = _fixed(state)
    made = {(store.name, i.name): _INDEXES[_index_of(i.name)](family, i, state) for i in indexes}
    return {(store.name, family.name): state, **made}


def _normalised(operator: Operator, family: ColumnFamily, state: DataFrame) -> DataFrame:
    """Return the rows with one zero and one NaN in their keys, and in the values of sessions, which
    repeat the keys. All operators look up such keys: Spark's planner puts it into the plan below
    some (`NormalizeFloatingNumbers`), and `UnsafeRow`'s writer does it for the others."""
    jvm: Any = state.sparkSession._jvm
    rule = java_class(jvm, f"{CATALYST}.optimizer.NormalizeFloatingNumbers$")
    columns = java_class(jvm, "org.apache.spark.sql.classic.ExpressionUtils")
    (key,) = (column for column in items(analysed(state).output()) if column.name() == "key")
    state = state.withColumn("key", Column(columns.column(getattr(rule, "MODULE$").normalize(key))))
    value = F.col("value")
    if operator.name.startswith(_SESSION):
        repeated = _schema(family.value_schema).fieldNames()
        for name in set(_schema(family.key_schema).fieldNames()) & set(repeated):
            value = value.withField(quoted(name), F.col("key").getField(name))
    return state.withColumn("value", value)


def _fixed(state: DataFrame) -> DataFrame:
    """Return the rows of one evaluation. Each frame made of `state` would evaluate it anew, and a
    time of expiration after ``current_timestamp()`` would not be its index's."""
    return state.localCheckpoint()


# --- joins


def _join(operator: Operator, store: Store, family: ColumnFamily, state: DataFrame) -> Frames:
    """Number the values of each key from 0, and count them for the store of counts."""
    counts_name = store.name.removesuffix(ROWS_OF_JOIN) + _COUNTS_OF_JOIN
    (counts,) = (s for s in operator.stores if s.name == counts_name)
    (of_counts,) = counts.families
    *names, index = _schema(family.key_schema).fieldNames()
    keys = [F.col("key").getField(name) for name in names]
    place = F.row_number().over(Window.partitionBy(*keys).orderBy(F.col("key").getField(index)))
    numbered = state.select(_struct(family.key_schema, [*keys, place - 1], "key"), "value")
    grouped = state.groupBy(_struct(of_counts.key_schema, keys, "key"))
    counted = grouped.agg(_struct(of_counts.value_schema, [F.count("*")], "value"))
    return {(store.name, family.name): numbered, (counts.name, of_counts.name): counted}


# --- session windows


def _require_sessions(at: str, family: ColumnFamily, state: DataFrame) -> None:
    """Raise SavepointError unless key and value agree on a session's owner and begin, and sessions
    of one key do not overlap: Spark would have merged them."""
    *names, begin = _schema(family.key_schema).fieldNames()
    value = _schema(family.value_schema)
    types = {field.name: field.dataType for field in value}
    sessions = [
        name
        for name, of in types.items()
        if isinstance(of, StructType) and of.fieldNames() == ["start", "end"]
    ]
    if len(sessions) != 1:
        raise SavepointError(f"{at}: which of its columns is the session is not clear: {sessions}")
    key, session = F.col("key"), F.col("value").getField(sessions[0])
    pairs = [(key.getField(begin), session.getField("start"))] + [
        (key.getField(n), F.col("value").getField(n)) for n in names if n in types
    ]
    for one, other in pairs:
        if bad := state.where(~one.eqNullSafe(other)).limit(1).collect():
            raise SavepointError(f"{at}: key and value do not agree: {bad[0].key}, {bad[0].value}")
    order = Window.partitionBy(*(key.getField(n) for n in names)).orderBy(key.getField(begin))
    before = F.lag(session.getField("end")).over(order)
    overlaps = state.withColumn("before", before).where(F.col("before") > session.getField("start"))
    if bad := overlaps.limit(1).collect():
        raise SavepointError(
            f"{at}: session {bad[0].key} begins before another one of its key has ended"
        )


# --- transformWithState: what Spark keeps beside a state variable


def _indexes(store: Store, family: ColumnFamily) -> list[ColumnFamily]:
    return [
        f
        for f in store.families
        if f.kind == "index"
        and f.name.partition("_")[2] == family.name
        # Spark declares this index for a list with TTL too, and keeps nothing in it.
        and not (family.ttl and _index_of(f.name) == _ROW_COUNTER)
    ]


def _index_of(name: str) -> str:
    return name.partition("_")[0]


def _expiration(family: ColumnFamily) -> Column:
    """Return a value's time of expiration: its last field."""
    return F.col("value").getField(_schema(family.value_schema).fieldNames()[-1])


def _count_index(family: ColumnFamily, index: ColumnFamily, state: DataFrame) -> DataFrame:
    return state.groupBy("key").agg(_struct(index.value_schema, [F.count("*")], "value"))


def _least_index(family: ColumnFamily, index: ColumnFamily, state: DataFrame) -> DataFrame:
    least = F.min(_expiration(family))
    return state.groupBy("key").agg(_struct(index.value_schema, [least], "value"))


def _ttl_index(family: ColumnFamily, index: ColumnFamily, state: DataFrame) -> DataFrame:
    """Return the index by time of expiration; of a list, by that of its first value to expire."""
    first = state.groupBy("key").agg(F.min(_expiration(family)).alias("first"))
    return first.select(
        _struct(index.key_schema, [F.col("first"), F.col("key")], "key"),
        _struct(index.value_schema, [F.lit(None)], "value"),
    )


_INDEXES: Mapping[str, Callable[[ColumnFamily, ColumnFamily, DataFrame], DataFrame]] = {
    _ROW_COUNTER: _count_index,
    "$count": _count_index,
    "$min": _least_index,
    "$ttl": _ttl_index,
}


def _struct(json: Any, parts: list[Column], name: str) -> Column:
    """Return a struct of these columns, with the names and types of a schema."""
    fields = zip(_schema(json), parts, strict=True)
    return F.struct(*(part.cast(f.dataType).alias(f.name) for f, part in fields)).alias(name)
