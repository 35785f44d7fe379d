"""Odd values and odd names, for every sink: `ValuesConformance` sends both through a sink.

The law: each value arrives as Spark's own batch writes it, or its row, its type or its column's
name is refused before the decision. Never another value.
"""

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.dead_letters import SelectiveSink
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink
from seamark.model.errors import ConfigurationError, PreflightError, WriteRefusedError
from seamark.model.schema import Column, Schema, quoted
from seamark.verify.conformance.steps import JOB, UID, attempt, until_proved

_DAYS = {
    "1970-01-01": 0, "1969-12-31": -1, "1582-10-04": -141_438, "1582-10-15": -141_427,
    "0001-01-01": -719_162, "0000-12-31": -719_163, "0000-01-01": -719_528,
    "-0001-12-31": -719_529, "-10000-01-01": -4_371_953, "9999-12-31": 2_932_896,
    "+10000-01-01": 2_932_897, "+50000-03-15": 17_542_671, "-5877641-06-23": -(2**31),
    "-5877611-06-22": 10_957 - 2**31, "+5881580-07-11": 2**31 - 1,
}  # fmt: skip
_TIMES = {
    "1970-01-01 00:00:00": 0, "1969-12-31 23:59:59.999999": -1,
    "2024-03-31 02:30:00.1": 1_711_852_200_100_000, "1899-12-31 23:59:59": -2_208_988_801_000_000,
    "0001-01-01 00:00:00": -62_135_596_800_000_000,
    "0000-01-01 00:00:00": -62_167_219_200_000_000,
    "-0001-12-31 23:59:59.999999": -62_167_219_200_000_001,
    "-9999-01-06 00:00:00": -377_704_684_800_000_000,
    "9999-12-31 23:59:59.999999": 253_402_300_799_999_999,
    "+10000-01-01 00:00:00": 253_402_300_800_000_000,
    "+32768-01-01 00:00:00": 971_890_963_200_000_000,
    "+55840-11-08 22:13:20": 1_700_000_000_000_000_000,
    "+67560-01-01 13:48:00": 2_069_820_481_680_000_000,
    "-290308-12-21 19:59:05.224192": -(2**63),
    "-290278-12-22 19:59:05.224192": 946_684_800_000_000 - 2**63,
    "+294247-01-10 04:00:54.775807": 2**63 - 1,
}  # fmt: skip
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0.0": -0.0}
_TEXTS = (
    "", " ", " a ", "\\N", "NULL", "null", "\\", "\\\\", "'", '"', '""', "''; --", "`", "a,b",
    "\n", "a\nb", "a\r\nb", "\t", "\0", "a\0b", "%s", "%", "{}", ":name", "?", "01", "1e5", "+1",
    "é", "e\u0301", "😀", "\u2028", "\ufeffbom", "\x7f", "\u0001", "NaN", "true", "A", "a",
    "x\\'y\\\"z", "ß'\\\n" * 2_000_000,
)  # fmt: skip
ODD_NAMES: Sequence[str] = (
    "rowid", "ROWID", "oid", "_rowid_", "ctid", "xmin", "tableoid", "my_row_id", "_id", "op",
    "epoch", "place", "n0", "v0", "c0", "s0", "s", "t", "target", "newest", "excluded", "count",
    "index", "select", "user", "order", "N", "_metadata", "_change_type", "_commit_version",
    "a.b", "a b", " a", "a ", "", "a,b", "a;b", "{a}", "(a)", "a=b", "a/b", "a\nb", "a\tb", "a\\b",
    'a"b', "a'b", "a`b", "%s", "%", "{}", ":a", "?", "@a", "$1", "--", "é", "😀", "ünï", "x" * 63,
    "x" * 64, "é" * 40, "x" * 300, "key", "value", "topic", "partition", "_seamark_op", "a\0b",
)  # fmt: skip


def _digits(*numbers: str) -> dict[str, Decimal]:
    return {number: Decimal(number) for number in numbers}


def _whole(bits: int) -> dict[str, int]:
    return {str(n): n for n in (-(2 ** (bits - 1)), -1, 0, 2 ** (bits - 1) - 1)}


ODD_VALUES: Mapping[str, tuple[pa.DataType, Mapping[str, Any]]] = {
    "boolean": (pa.bool_(), {"true": True, "false": False}),
    "tinyint": (pa.int8(), _whole(8)), "smallint": (pa.int16(), _whole(16)),
    "int": (pa.int32(), _whole(32)), "bigint": (pa.int64(), _whole(64)),
    "float": (pa.float32(), {**_FLOATS, "1.4E-45": 1e-45, "3.4028235E38": 3.4028234663852886e38,
                             "0.1": 0.1, "1.6777216E7": 16_777_216.0}),
    "double": (pa.float64(), {**_FLOATS, "4.9E-324": 5e-324, "0.1": 0.1, "1.0E16": 1e16,
                              "1.7976931348623157E308": 1.7976931348623157e308,
                              "2.2250738585072014E-308": 2.2250738585072014e-308}),
    "decimal(38,0)": (pa.decimal128(38, 0), _digits("9" * 38, "-" + "9" * 38, "0", "-1")),
    "decimal(38,38)": (pa.decimal128(38, 38), _digits("0." + "9" * 38, "-0." + "0" * 37 + "1")),
    "decimal(38,30)": (pa.decimal128(38, 30), _digits(
        "0.000000012345678901234567890123", "99999999." + "9" * 30, "-0." + "0" * 29 + "1",
        "0." + "0" * 30)),
    "date": (pa.date32(), _DAYS),
    "timestamp": (pa.timestamp("us", "Asia/Tokyo"), _TIMES),
    "timestamp_ntz": (pa.timestamp("us"), _TIMES),
    "string": (pa.string(), {text: text for text in _TEXTS}),
    "binary": (pa.binary(), {"": b"", "\0": b"\0", "bytes": bytes(range(256)), "\\'": b"\\'"}),
    "array<bigint>": (pa.list_(pa.int64()), {"[]": [], "[null]": [None], "[1,null]": [1, None]}),
    "array<double>": (pa.list_(pa.float64()), {'["NaN",-0.0,1.0E-7]': [math.nan, -0.0, 1e-7]}),
    "array<decimal(38,30)>": (pa.list_(pa.decimal128(38, 30)), {
        f"[{number}]": [Decimal(number)] for number in ("99999999." + "9" * 30, "-1E-30")}),
    "array<string>": (pa.list_(pa.string()), {
        json.dumps([text], ensure_ascii=False): [text] for text in _TEXTS if len(text) < 99}),
    "map<string,bigint>": (pa.map_(pa.string(), pa.int64()), {
        "{}": [], '{"":null}': [("", None)],
        '{"\'\\"\\\\":1,"NULL":2}': [("'\"\\", 1), ("NULL", 2)]}),
    "map<string,double>": (pa.map_(pa.string(), pa.float64()), {
        '{"a":-0.0,"b":0.0}': [("a", -0.0), ("b", 0.0)]}),
    "struct<a:decimal(38,0),b:array<string>>": (
        pa.struct([("a", pa.decimal128(38, 0)), ("b", pa.list_(pa.string()))]), {
            "{}": {"a": None, "b": None}, '{"b":[null]}': {"a": None, "b": [None]},
            '{"a":%s,"b":[]}' % ("9" * 38): {"a": Decimal("9" * 38), "b": []}}),
}  # fmt: skip
"""By Spark type: Arrow's type, and each value by the text that Spark's CAST makes of it (in UTC),
or, if it is nested, to_json. Dates and times are days and microseconds since 1970. Null belongs to
each."""


@dataclass(frozen=True)
class ValuesUnderTest:
    """A system for odd values and names.

    make: returns a sink on a fresh target for a DataFrame of this shape: `n`, which numbers the
        rows and may be a key, and the column to be tried. It may refuse by ConfigurationError.
    read: returns, of each number, the value of the other column as a reader finds it: Python's,
        or text for numbers and times, and JSON for nested values; a time also as microseconds or
        days since 1970. Bytes of a text that are not UTF-8 are replaced by U+FFFD.
    sql_floats: whether the sink documents null for NaN, which its target has not, and 0.0 for -0.0.
    json_floats: whether it documents 0.0 for a -0.0 that it writes within JSON.
    """

    make: Callable[[Schema], TwoPhaseCommitSink[Any]]
    read: Callable[[Schema], Mapping[int, Any]]
    sql_floats: bool = False
    json_floats: bool = False


class ValuesConformance:
    """The tests. A subclass gives the fixture `odd`: a `ValuesUnderTest`."""

    @pytest.mark.parametrize("type_", ODD_VALUES)
    def test_each_value_arrives_or_is_refused(self, odd: ValuesUnderTest, type_: str) -> None:
        """Each row by itself."""
        kind, values = ODD_VALUES[type_]
        schema = (Column("n", "bigint"), Column("v", type_))
        if (sent := _sent(odd, schema, kind, [*values.items(), ("", None)])) is not None:
            arrived = dict(odd.read(schema))
            assert arrived.keys() == sent.keys()
            for number, (text, value) in sent.items():
                got = arrived[number]
                if odd.sql_floats and isinstance(value, float):
                    value = None if math.isnan(value) else value or 0.0
                    got = got or 0.0 if isinstance(got, float) else got
                if odd.json_floats and pa.types.is_nested(kind):
                    text = text.replace("-0.0", "0.0")
                assert _is_same(kind, text, value, got), f"{text!r:.80} became {got!r:.80}"

    def test_a_text_that_is_not_utf8_arrives_or_is_refused(self, odd: ValuesUnderTest) -> None:
        """Spark's CAST makes such of bytes. Its own writers keep them, or replace them."""
        schema = (Column("n", "bigint"), Column("v", "string"))
        sent = _sent(odd, schema, pa.string(), [("a", b"a"), ("a\ufffdb", b"a\xffb"), ("b", b"b")])
        assert sent is not None
        arrived = {number: text for number, text in odd.read(schema).items() if text is not None}
        assert arrived == {number: text for number, (text, _) in sent.items()}
        assert sent.keys() >= {0, 2}

    @pytest.mark.parametrize("name", ODD_NAMES, ids=[f"{n!a:.12}" for n in ODD_NAMES])
    def test_a_column_of_any_name_is_written_or_refused(
        self, odd: ValuesUnderTest, name: str
    ) -> None:
        """With several rows of one key, if the sink replaces rows by key."""
        schema = (Column("n", "bigint"), Column(name, "string"))
        rows = [("first", "first"), ("", None), ("last", "last")]
        if _sent(odd, schema, pa.string(), rows, twice=True) is not None:
            assert dict(odd.read(schema)) == {0: "first", 1: None, 2: "last"}


def _sent(
    odd: ValuesUnderTest,
    schema: Schema,
    kind: pa.DataType,
    values: Sequence[tuple[str, Any]],
    *,
    twice: bool = False,
) -> dict[int, tuple[str, Any]] | None:
    """Write and commit the rows; return those taken, by number. None: the sink refuses the
    DataFrame."""
    name, taken = schema[1].name, dict(enumerate(values))
    try:
        sink = odd.make(schema)
        first, expression = sink.select_expressions(schema)
        driver_side = sink.create_committer(SinkContext(JOB, "orders", UID, 1, 5.0, schema))
        driver_side.preflight()
    except (ConfigurationError, PreflightError) as refusal:
        assert "\n" not in str(refusal).strip()
        return None
    if expression not in (name, quoted(name)):  # as text that Spark makes
        if kind == pa.binary():
            return None
        kind, values = pa.string(), [(text, None if v is None else text) for text, v in values]
    texts = kind == pa.string()  # not all of them UTF-8
    column = pa.array([value for _, value in values], pa.binary() if texts else kind)
    column = column.view(kind) if texts else column
    numbers = pa.array(range(len(values))).cast(pa.int64() if first == "`n`" else pa.string())
    rows = pa.record_batch([numbers, column], names=["n", name])
    committables = list[Any]()
    if isinstance(sink, SelectiveSink):
        writer = sink.create_selective_writer(attempt())
        if twice and getattr(sink, "keys", None):
            writer.write_accepted(rows.set_column(0, "n", pa.array([2, 1, 0])))
        for row in writer.write_accepted(rows):
            assert row.reason
            del taken[row.index]
        committables += writer.prepare_commit()
    else:
        for number in range(len(values)):
            alone = sink.create_writer(attempt(partition=number))
            try:
                alone.write(rows.slice(number, 1))
                committables += alone.prepare_commit()
            except WriteRefusedError:
                alone.abort()
                del taken[number]
    until_proved(driver_side.commit, committables)
    return taken


def _is_same(kind: pa.DataType, text: str, sent: Any, found: Any) -> bool:
    if sent is None or found is None:
        return sent is found
    if pa.types.is_floating(kind):
        number = float(str(found).replace("Infinity", "inf"))
        both = [pa.scalar(value, kind).as_py() for value in (number, float(sent))]
        return repr(both[0]) == repr(both[1])  # with NaN, and the sign of 0
    if pa.types.is_nested(kind):
        if not isinstance(found, str):
            return repr(found) == repr(sent)
        return bool(_parsed(found) == _parsed(text))
    if pa.types.is_temporal(kind) and not isinstance(found, int):
        if isinstance(found, dt.datetime):
            found = found.isoformat(" ")
        return _short(str(found)) == text
    if pa.types.is_decimal(kind):
        return bool(Decimal(found) == sent)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return str(found) in (text, str(int(sent)), str(sent))
    return bool(found == sent)


def _parsed(text: str) -> Any:
    """Return JSON with each number as its sign, which Decimal compares not at 0, and a Decimal."""
    return json.loads(text, parse_float=_signed, parse_int=_signed)


def _signed(number: str) -> tuple[bool, Decimal]:
    return number[0] == "-", Decimal(number)


def _short(time: str) -> str:
    time = time.removesuffix("Z").removesuffix("+00:00")
    return time.rstrip("0").rstrip(".") if "." in time else time
