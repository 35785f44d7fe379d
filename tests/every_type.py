"""A column of each type that a table's sink takes: its Spark type, Arrow's type, and two values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = datetime.timezone.utc
TYPES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "flag": ("boolean", pa.bool_(), [True, None]),
    "tiny": ("tinyint", pa.int8(), [-128, 127]),
    "small": ("smallint", pa.int16(), [-32768, None]),
    "whole": ("int", pa.int32(), [-(2**31), 2**31 - 1]),
    "big": ("bigint", pa.int64(), [-(2**63), 2**63 - 1]),
    "single": ("float", pa.float32(), [1.5, None]),
    "double": ("double", pa.float64(), [float("inf"), -0.5]),
    "money": ("decimal(38,10)", pa.decimal128(38, 10), [Decimal("-1.0000000001"), None]),
    "text": ("string", pa.string(), ["ü\0 ", ""]),
    "short": ("varchar(10)", pa.string(), ["x", None]),
    "raw": ("binary", pa.binary(), [b"\0\xff", b""]),
    "day": ("date", pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "at": (
        "timestamp",
        pa.timestamp("us", "America/New_York"),
        [datetime.datetime(2026, 1, 1, 12, 0, 0, 123456, UTC), None],
    ),
    "local": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [datetime.datetime(2026, 1, 1, 12, 0, 0, 1), None],
    ),
    "list": ("array<int>", pa.list_(pa.int32()), [[1, None], None]),
    "map": ("map<string,bigint>", pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
    "nested": (
        "struct<a:int,b:array<struct<c:string>>>",
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
        [{"a": 1, "b": [{"c": "x"}, None]}, None],
    ),
}
