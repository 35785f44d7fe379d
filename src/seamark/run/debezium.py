"""`sm.debezium`: change data that Debezium has put into Kafka, as rows of the changed table.

The envelope is read by Spark's own expressions, no Python is called for a row. Its form:
Debezium's documentation, "Change event values" (`before`, `after`, `op`, perhaps in a `payload`).
"""

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from seamark.api.checks import one_of
from seamark.model.errors import ConfigurationError
from seamark.run.process import columns_of
from seamark.spark.decoded import require_frame

UNREADABLE = "unreadable"
"""The op of a row whose envelope cannot be read: a value that every sink with ``op=`` refuses."""
Unit = Literal["seconds", "millis", "micros"]
_OPS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}
_UNITS = {"seconds": 1, "millis": 1_000, "micros": 1_000_000}
_KAFKA, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_NANO = f"{_TIME}NanoTimestamp"
_TYPES = {
    f"{_KAFKA}Timestamp": 1_000, f"{_TIME}Timestamp": 1_000, f"{_TIME}MicroTimestamp": 1_000_000,
    _NANO: 1_000_000_000,
}  # fmt: skip
"""The types in a record's schema whose numbers are timestamps: how many are a second."""
_FIELDS = (
    "ARRAY<STRUCT<field: STRING, name: STRING, items: STRING, `values`: STRING, fields: STRING>>"
)
_SCHEMA = f"schema STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: {_FIELDS}>>>"
_CORRUPT = "_seamark_corrupt"
_TEXTS = (StringType, CharType, VarcharType)
_EXACT = re.compile(r"decimal\(|string|char\(")
_DIGITS = r"-?(?=[0-9]*[.eE])[0.]*[1-9](?:\.?[0-9]){14,}\.?[1-9]"
_ROUNDED = r'"(?:%s)"\s*:\s*(?:[\[{](?:[^\]}]*?[\[:,])?\s*)?' + _DIGITS
"""JSON in which a field, or a list or object in it, has a number of more than 15 digits that Spark
would read as a double, for a text too. Few records have any such number: `_DIGITS` is quicker."""
_DATE = r"^\s*([-+]?\d+-\d+-\d+)"
"""What a time's text begins with. Spark takes today for one that has no date."""
_DAY = _DATE + r"(?:[T ]00:00(?::00(?:\.0+)?)?)?Z?\s*$"
"""A date's text. Spark drops whatever follows the date."""
_OFFSET = r"\d:\d.*[-+A-Ya-y]"
"""A time's text with an offset other than Z."""
_PLACEHOLDER = "__debezium_unavailable_value"
"""What PostgreSQL's connector writes for a long value that a change has left as it was."""
_PLACEHOLDERS = (
    _PLACEHOLDER, "b68a35a7-17ad-35b3-af2a-ae46edb4545a",
    b64encode(_PLACEHOLDER.encode()).decode(), f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}',
)  # fmt: skip
"""The same as a text, in an array of UUIDs (Java's `UUID.nameUUIDFromBytes` of it), as a bytea in
base64, and as an hstore in JSON."""
_NUMBERS = [",".join(f"{n}{end}" for n in _PLACEHOLDER.encode()) for end in ("", ".0")]
"""The same in an array of numbers, dates or times: its bytes."""


def debezium(
    df: DataFrame,
    schema: str | StructType,
    keys: str | Sequence[str],
    *,
    op: str = "op",
    numeric_timestamps: Unit | Mapping[str, Unit] | None = None,
) -> DataFrame:
    """Return the rows of a table from its Debezium changes in Kafka, with their op.

    df: a Kafka source's DataFrame. Its `value` is Debezium's JSON, with or without schemas
        (``value.converter.schemas.enable``).
    schema: the table's columns, as Spark's DDL or type: ``"id BIGINT, name STRING"``. Other fields
        are left out, and a missing one is null; one in another case, at any depth, makes the row
        unreadable.
    keys: the columns of the table's key, by which Debezium has put the changes into partitions. An
        update that changes one is unreadable.
    op: the name of the new column for a sink's ``op=``: ``insert`` (Debezium's ``c``, and ``r`` of
        a snapshot), ``update`` (``u``) or ``delete`` (``d``, with the keys alone).
    numeric_timestamps: what a number in a column of TIMESTAMP or TIMESTAMP_NTZ counts since 1970,
        where the record's schema does not tell: one unit, or one for each column that has numbers,
        as ``{"created": "millis", "updated": "micros"}`` (MySQL's DATETIME and DATETIME(6)). None
        takes text alone. Without a unit for the very column, a number that would be a time of the
        first weeks of 1970 is likely one of a coarser unit, and unreadable.

    Tombstones are left out. Every other record stays a row, in Kafka's order, so no change gets
    lost in silence: with another op, such as ``t`` (TRUNCATE), the op is passed on; with an
    envelope or a value that `schema` cannot hold, the op is ``unreadable``. A sink with ``op=``
    refuses both, or hands them to its dead letters.

    Raises ConfigurationError.
    """
    require_frame(df, "sm.debezium")
    columns = _columns(df, schema)
    given, keys = keys, (keys,) if isinstance(keys, str) else keys
    keys = tuple(keys) if isinstance(keys, Iterable) else ()
    if not keys or not all(isinstance(key, str) and key in columns.names for key in keys):
        raise ConfigurationError(
            f"sm.debezium: keys is {given!r}; give the table's key columns, out of "
            f"{', '.join(columns.names)}"
        )
    if not isinstance(op, str) or not op or op.lower() in {name.lower() for name in columns.names}:
        raise ConfigurationError(
            f"sm.debezium: op is {op!r}; give a name that no column of the schema has"
        )
    units = _checked_units(numeric_timestamps, columns)
    try:
        change = _changes(df, columns, keys)
    except AnalysisException as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigurationError(
            f"sm.debezium: schema is {columns.simpleString()}, which Spark cannot read from JSON: "
            f"{said}"
        ) from None
    deleted, unread, values = F.col("op") == "d", F.col("unread"), {}
    for number, field in enumerate(columns):
        kind, raw = field.dataType, F.col(f"_{number}")
        type_ = F.lit(None) if _raw(kind) == kind else F.col(f"_type_{number}")
        unit, by_column = units.get(field.name), isinstance(numeric_timestamps, Mapping)
        value = values[field.name] = _value(kind, raw, type_, unit, by_column)
        unread = unread | (raw.isNotNull() & value.isNull())
    names = F.create_map(*(F.lit(text) for pair in _OPS.items() for text in pair))
    known = F.coalesce(names[F.col("op")], F.col("op"), F.lit(UNREADABLE))
    return change.select(
        *(
            (value if name in keys else F.when(~deleted, value)).alias(name)
            for name, value in values.items()
        ),
        F.when(unread, F.lit(UNREADABLE)).otherwise(known).alias(op),
    )


def _checked_units(given: object, columns: StructType) -> dict[str, str]:
    """Return the unit of each column that has one."""
    times = [f.name for f in columns if isinstance(f.dataType, TimestampType | TimestampNTZType)]
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        one_of(given, tuple(_UNITS), "sm.debezium: numeric_timestamps")
        return dict.fromkeys(times, str(given))
    for name, unit in given.items():
        one_of(name, tuple(times), "sm.debezium: a column in numeric_timestamps")
        one_of(unit, tuple(_UNITS), f"sm.debezium: numeric_timestamps of {name!r}")
    return dict(given)


def _columns(df: DataFrame, schema: str | StructType) -> StructType:
    if "value" not in df.columns:
        raise ConfigurationError(
            f"sm.debezium: the DataFrame has no column 'value' (it has {', '.join(df.columns)}); "
            "give the DataFrame of a Kafka source"
        )
    columns = columns_of(schema, "sm.debezium")
    names = [name.lower() for name in columns.names]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"sm.debezium: schema has the columns {columns.names}; give at least one, each once"
        )
    return columns


def _changes(df: DataFrame, columns: StructType, keys: Sequence[str]) -> DataFrame:
    """Return of each record the op, whether it was unreadable, and the row's raw values as `_0`,
    `_1`, … One step after another: an expression used twice would stand in the plan twice."""
    raw = StructType([StructField(f.name, _raw(f.dataType)) for f in columns])
    envelope = StructType(
        [StructField("before", raw), StructField("after", raw), StructField("op", StringType())]
    )
    whole = StructType(
        [StructField("payload", envelope), *envelope, StructField(_CORRUPT, StringType())]
    )
    if raw != columns:  # else no unit is wanted
        whole = whole.add("schema", StructType.fromDDL(_SCHEMA)["schema"].dataType)
    key = F.col("key") if "key" in df.columns else F.lit(None)
    records = df.where(F.col("value").isNotNull())
    both = F.concat_ws(" ", key.cast("string"), F.col("value").cast("string"))
    texts = [f.name for f in columns if isinstance(f.dataType, _TEXTS)]
    decimals = [
        rf"\Q{f.name}\E"
        for f in columns
        if f.name not in texts and _EXACT.search(f.dataType.simpleString())
    ]
    long = F.when(both.rlike(r"[\[:,]\s*" + _DIGITS), both) if texts or decimals else F.lit(None)
    records = records.select(
        key.alias("key"), _json("value", whole).alias("read"), long.alias("long"),
        F.col("value").cast("string").alias("value"),
    )  # fmt: skip
    rounded = F.col("long").rlike(_ROUNDED % "|".join(decimals)) if decimals else F.lit(None)
    rounded = F.coalesce(rounded, F.lit(False))
    read, change = F.col("read"), F.col("change")
    plain = F.struct(*(read[name].alias(name) for name in envelope.names))
    is_read = read.isNotNull() & read[_CORRUPT].isNull() & ~rounded
    fields_of = F.lit(None)
    if "schema" in whole.names:
        rows = F.filter(read["schema"]["fields"], lambda f: f["field"].isin("before", "after"))
        fields_of = F.get(rows, F.lit(0))["fields"]
    records = records.select(
        "key", is_read.alias("is_read"), F.coalesce(read["payload"], plain).alias("change"),
        fields_of.alias("types"), "long", "value",
    )  # fmt: skip
    row = F.when(change["op"] == "d", change["before"]).otherwise(change["after"])
    # An update without its row, as of MongoDB's connector, would write nulls over the values.
    is_empty = change["op"].isin(*_OPS) & (change["op"] != "d") & row.isNull()
    # Nothing would delete the old key's row. Debezium deletes it where its own key changes.
    moved = F.array(*(change["before"][name] != change["after"][name] for name in keys))
    is_moved = F.coalesce((change["op"] == "u") & F.array_contains(moved, True), F.lit(False))
    unread = ~F.col("is_read") | change["op"].isNull() | is_empty | is_moved
    records = records.select(
        "key", change["op"].alias("op"), unread.alias("unread"), row.alias("row"), "types", "long",
        "value",
    )  # fmt: skip
    unread = F.col("unread") | _is_respelled(columns)
    for name in texts:  # a double's text is often as the JSON has it
        as_given = rf'"\Q{name}\E"\s*:\s*([-+.0-9eE]+)'
        given = F.regexp_extract_all("long", F.lit(as_given), F.lit(1))
        is_long = F.col("long").rlike(_ROUNDED % rf"\Q{name}\E")
        altered = is_long & ~F.array_contains(given, F.col("row")[name])
        unread |= F.coalesce(altered, F.lit(False))
    fields = []
    for number, name in enumerate(columns.names):
        value = F.col("row")[name]
        if name in keys:
            # A change of a table without a replica identity has its key in the record's key alone.
            own = StructType([raw[name]])
            wrapped = _json("key", StructType([StructField("payload", own)]))["payload"][name]
            value = F.coalesce(value, wrapped, _json("key", own)[name])
        fields.append(value.alias(f"_{number}"))
        if raw[name] != columns[name]:
            names = F.transform(F.col("types"), lambda f: f["field"])
            at = F.array_position(names, name).try_cast("int") - 1
            type_ = F.get(F.col("types"), at)
            below = F.concat_ws(" ", type_["items"], type_["values"], type_["fields"])
            is_nested = isinstance(columns[name].dataType, ArrayType | MapType | StructType)
            fields.append((below if is_nested else type_["name"]).alias(f"_type_{number}"))
    return records.select("op", unread.alias("unread"), *fields)


def _is_respelled(columns: StructType) -> Column:
    """Whether a row lacks a field of the schema, at any depth, that it has in another case
    (Oracle's `NAME`): the null read for it would be written over the value."""
    may_lack = F.lit(False)
    for field in columns:
        may_lack |= F.col("row")[field.name].isNull() & _has_another_case([field.name])
        if within := sorted({*_names(field.dataType)}):
            may_lack |= _has_another_case(within)
    paths = ("$.payload.after", "$.after", "$.payload.before", "$.before")
    row = F.coalesce(*(F.get_json_object("value", path) for path in paths))
    return F.when(may_lack, _has_twin(columns, row)).otherwise(F.lit(False))


def _has_another_case(names: Sequence[str]) -> Column:
    """Whether a row's JSON has one of the names in another case anywhere: few records have."""
    folded = [name.lower() for name in names]
    once = [name for name in names if folded.count(name.lower()) == 1]
    own, given = ("|".join(rf"\Q{name}\E" for name in some) for some in (once, names))
    return F.col("value").rlike(rf'"(?!(?:{own})")(?iu:{given})"\s*:')


def _names(kind: DataType) -> Iterator[str]:
    match kind:
        case ArrayType():
            yield from _names(kind.elementType)
        case MapType():
            yield from _names(kind.valueType)
        case StructType():
            for field in kind:
                yield from (field.name, *_names(field.dataType))


def _has_twin(kind: DataType, text: Column) -> Column:
    """Whether a value's JSON lacks a field that it has in another case."""
    match kind:
        case ArrayType() | MapType():
            is_list = isinstance(kind, ArrayType)
            inner = kind.elementType if is_list else kind.valueType
            parts = F.from_json(text, "array<string>" if is_list else "map<string,string>")
            parts = parts if is_list else F.map_values(parts)
            found = F.exists(parts, lambda one: _has_twin(inner, one))
        case StructType():
            given = F.json_object_keys(text)
            missing = F.transform(F.array_except(F.lit(kind.names), given), F.lower)
            found = F.arrays_overlap(missing, F.transform(given, F.lower))
            nested = [field for field in kind if [*_names(field.dataType)]]
            texts = StructType([StructField(field.name, StringType()) for field in nested])
            parts = F.from_json(text, texts)
            for field in nested:
                inside = _has_twin(field.dataType, parts[field.name])
                found = F.coalesce(found, F.lit(False)) | inside
        case _:
            return F.lit(False)
    return F.coalesce(found, F.lit(False))


def _json(column: str, kind: StructType) -> Column:
    options = {"columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col(column).cast("string"), kind, options)


def _raw(kind: DataType) -> DataType:
    """Return the type to read from JSON: dates and times may be numbers, in Debezium's units, and
    Spark would round a decimal, read 200 as a TINYINT of -56, and 1e39 as an infinite FLOAT."""
    match kind:
        case ArrayType():
            return ArrayType(_raw(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(kind.keyType, _raw(kind.valueType), kind.valueContainsNull)
        case StructType():
            return StructType([StructField(f.name, _raw(f.dataType), f.nullable) for f in kind])
        case DateType() | TimestampType() | TimestampNTZType() | DecimalType():
            return StringType()
        case CharType() | VarcharType():  # Spark's from_json refuses them
            return StringType()
        case ByteType():
            return ShortType()
        case FloatType():
            return DoubleType()
    return kind


def _value(
    kind: DataType, raw: Column, type_: Column, unit: str | None = None, by_column: bool = False
) -> Column:
    """Return a value from its raw form; null for one that `kind` cannot hold, alone or anywhere
    within. `type_` is the name of its type in the record's schema, null without; of a nested value
    it is the schema of what is within."""
    match kind:
        case ArrayType():
            value = F.transform(raw, lambda one: _value(kind.elementType, one, type_))
            is_left = F.concat_ws(",", raw.cast("array<string>")).isin(_NUMBERS)
            return F.when((_filled(raw) == _filled(value)) & ~is_left, value)
        case MapType():
            value = F.transform_values(raw, lambda _, one: _value(kind.valueType, one, type_))
            return F.when(_filled(F.map_values(raw)) == _filled(F.map_values(value)), value)
        case StructType():
            held, fields = raw.isNotNull(), list[Column]()
            for field in kind:
                value = _value(field.dataType, raw[field.name], type_)
                held &= raw[field.name].isNull() | value.isNotNull()
                fields.append(value.alias(field.name))
            return F.when(held, F.struct(*fields))
        case StringType() | CharType() | VarcharType() | BinaryType():
            return F.when(~raw.cast("string").isin(*_PLACEHOLDERS), raw)
        case DecimalType():
            return _decimal(kind, raw, type_)
        case DateType() | TimestampType() | TimestampNTZType():
            return _time(kind, raw, type_, unit, by_column)
        case ByteType():
            return raw.try_cast(kind)
        case FloatType():  # NaN equals itself in Spark
            value = raw.cast(kind)
            return F.when((F.abs(value) != F.lit(math.inf)) | (value == raw), value)
    return raw


def _filled(values: Column) -> Column:
    return F.array_size(F.array_compact(values))


def _decimal(kind: DecimalType, raw: Column, type_: Column) -> Column:
    """Return a decimal from its text; null for one with more digits than `kind` has, and for bytes
    in base64, which may be digits alone. `type_` as for `_value`."""
    digits = F.regexp_replace(raw, "[eE].*|[^0-9]", "")
    fraction = F.length(F.regexp_extract(raw, r"\.([0-9]*)", 1))
    exponent = F.regexp_extract(raw, "[eE](.*)", 1).try_cast("int")
    zeros = F.length(digits) - F.length(F.rtrim(digits, F.lit("0")))
    exact = (fraction - F.coalesce(exponent, F.lit(0)) - zeros <= kind.scale) | (
        zeros == F.length(digits)
    )
    is_bytes = F.coalesce(type_.contains(f"{_KAFKA}Decimal"), F.lit(False)) & ~raw.rlike("[.-]")
    return F.when(exact & ~is_bytes, raw.try_cast(kind))


def _time(kind: DataType, raw: Column, type_: Column, unit: str | None, by_column: bool) -> Column:
    """Return a date or time from its raw text or number; null for one that it cannot hold. `type_`
    as for `_value`."""
    number, is_number = raw.try_cast("bigint"), raw.rlike(r"^-?\d+$")
    is_time = F.coalesce(type_.startswith(_TIME) | type_.startswith(_KAFKA), F.lit(False))
    if isinstance(kind, DateType):
        days = F.when(~is_time | type_.endswith(".Date"), number.try_cast("int"))
        # The years 1 to 9999, or what the record calls a date: all but PostgreSQL's infinities.
        plausible = days.between(-719_162, 2_932_896)
        plausible |= is_time & days.between(-(2**31) + 1, 2**31 - 2)
        text = F.regexp_extract(raw, _DAY, 1).try_cast(kind)
        return F.when(is_number, F.date_from_unix_date(F.when(plausible, days))).otherwise(text)
    text = F.when(raw.rlike(_DATE), raw.try_cast(kind))
    per = F.create_map(*(F.lit(value) for pair in _TYPES.items() for value in pair))[type_]
    per = F.when(is_time, per).otherwise(F.lit(unit and _UNITS[unit]))
    micros = F.floor(number.cast("decimal(20,0)") * F.lit(1_000_000).cast("decimal(7,0)") / per)
    seconds = (micros / 1_000_000).try_cast("decimal(18,6)")
    plausible = (seconds >= -62_135_596_800) & (seconds < 253_402_300_800)
    if not by_column:
        # Any instant up to 2286 in a coarser unit is below, and from 1978 on in a finer one after
        # the year 9999. 0 is 1970 in every unit.
        plausible &= is_time | (seconds == 0) | (F.abs(seconds) >= 10_000_000)
    if isinstance(kind, TimestampType):
        # Not 1970 and an interval: Spark adds its days by the calendar of the session's time zone.
        at = F.timestamp_micros(F.when(plausible, micros).try_cast("bigint"))
    else:
        span = F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), F.when(plausible, seconds))
        at = F.lit("1970-01-01 00:00:00").cast(kind) + span
        text = F.when(~raw.rlike(_OFFSET), text)
    return F.when(is_number, at).otherwise(text)
