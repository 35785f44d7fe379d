"""What a column holds: the types of new columns, whether an existing one keeps a DataFrame's
values, and the values as the driver takes them.

A column is judged by its `Form`, made of its reflected SQLAlchemy type. Where no form keeps every
value of a Spark type, the job is refused at its start. A value that has no place in the form (a
date of the year 10000, NaN where there is none) is refused with its row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql

from seamark.contracts.dead_letters import Refusals
from seamark.contracts.record_batches import null_where, nulls, numbers
from seamark.contracts.text_forms import as_text, since_1970
from seamark.sinks.internal.columns import not_utf8

KEY_LENGTH = 255
_NAN = ("postgresql", "duckdb")
_INFINITE = (*_NAN, "sqlite")
"""Dialects whose numbers may be NaN, or infinite."""
_EXACT_TEXTS = ("postgresql", "duckdb", "sqlite")
"""Dialects that compare texts by every byte unless told otherwise. The others may take 'a ' for
'a': no key may end in a space there."""
_EXACT_COLLATIONS = {"mysql": ("_nopad_bin", "_0900_bin"), "mssql": ("_BIN2",)}
"""Dialects that may take 'A' for 'a', and the ends of the names of collations that do not."""
_TICKS_US = {"firebird": 100}
"""The step of a timestamp whose type does not tell it, where it is no microsecond."""
_NO_TEXTS = (sa.Enum, sa.CHAR, sa.NCHAR, sa.BINARY, sa.JSON, mysql.SET, mssql.XML)
_MOST_BYTES = {mysql.TINYTEXT: 255, mysql.TEXT: 65_535, mysql.MEDIUMTEXT: 16_777_215}
"""Of MySQL's texts: in strict mode too it cuts off the blanks behind them."""
_COARSE_TIMES = (mysql.TIMESTAMP, mssql.TIMESTAMP, mssql.SMALLDATETIME)
"""Times of few years or whole seconds, and what is no time."""
_DAY_US = 86_400_000_000
_YEAR_1, _YEAR_10000 = -719_162, 2_932_897  # days since 1970
_INTEGERS = {"tinyint": (8, 3), "smallint": (16, 5), "int": (32, 10), "bigint": (64, 19)}
"""The bits and the digits of each of Spark's integers."""
_HOLDS: dict[str, tuple[str, ...]] = {
    "boolean": ("boolean", "integer"),
    **dict.fromkeys(_INTEGERS, ("integer", "decimal")),
    "float": ("double", "float"),
    "double": ("double",),
    "date": ("date", "text"),
    "timestamp": ("instant", "time", "text"),
    "timestamp_ntz": ("time", "text"),
    "binary": ("binary",),
    "decimal": ("decimal", "text"),
}
"""The kinds of `Form` that keep each Spark type's values; all others go into a text."""


@dataclass(frozen=True)
class Form:
    """What a column holds. `kind` is "" if it alters values without a word, or is not known.

    `bits`: those of an integer whose overflow would not be refused with its row; `length`: the most
    characters of a text; `digits`: those of a decimal, before and behind the point; `tick_us`: the
    step of a time, in microseconds; `exact`: whether texts are one key only if every character is
    the same; `padded`: a space at a text's end may count for nothing; `most_bytes`: those of a text
    that ends in one; `utf16`: SQLite keeps texts so, and makes U+FFFD of two letters.
    """

    kind: str
    bits: int = 64
    length: int | None = None
    digits: tuple[int, int] | None = None
    tick_us: int = 1
    exact: bool = True
    padded: bool = False
    most_bytes: int | None = None
    utf16: bool = False


def form_of(of: Any, dialect: str) -> Form:
    """Return what a column of this type holds."""
    if isinstance(of, _NO_TEXTS):
        return Form("")  # fills up, takes what it knows alone, or writes it in another way
    if isinstance(of, sa.String):
        if dialect == "postgresql" and not isinstance(of, sa.VARCHAR | sa.Text):
            return Form("")  # "char" and name cut off
        if dialect == "mssql" and not (
            isinstance(of, sa.Unicode | sa.UnicodeText) or (of.collation or "").endswith("_UTF8")
        ):
            return Form("")  # makes '?' of letters that its code page lacks
        if dialect == "duckdb":  # makes texts of other types in its own form
            return Form("varchar")
        ends, collation = _EXACT_COLLATIONS.get(dialect, ()), of.collation or ""
        exact = not ends or collation.endswith(ends)
        exact = exact and not isinstance(of, postgresql.CITEXT)
        padded = dialect not in _EXACT_TEXTS and not (dialect == "mysql" and exact)
        most = _MOST_BYTES.get(type(of))
        if most and (getattr(of, "charset", None) or "").startswith(("ucs2", "utf16", "utf32")):
            most //= 4  # a byte of UTF-8 takes so many at most
        return Form("text", length=of.length, exact=exact, padded=padded, most_bytes=most)
    if isinstance(of, sa.Float) and getattr(of, "scale", None) is not None:
        return Form("")  # rounds
    if isinstance(of, sa.Double) or (isinstance(of, sa.Float) and dialect == "sqlite"):
        return Form("double")
    if isinstance(of, sa.Float):
        return Form("double" if dialect == "mssql" and not isinstance(of, sa.REAL) else "float")
    if isinstance(of, sa.Numeric):
        if dialect == "sqlite":  # makes doubles of them
            return Form("")
        if of.precision is None:
            return Form("decimal" if dialect in ("postgresql", "oracle") else "")
        scale = of.scale or 0
        return Form("decimal", digits=(of.precision - scale, scale))
    if isinstance(of, oracle.DATE):
        return Form("date")
    if isinstance(of, sa.DateTime):
        if isinstance(of, _COARSE_TIMES) or (dialect == "mssql" and type(of) is sa.DATETIME):
            return Form("")
        digits = (of.fsp or 0) if dialect == "mysql" else getattr(of, "precision", None)
        tick = _TICKS_US.get(dialect, 1) if digits is None else 10 ** max(0, 6 - digits)
        return Form("instant" if of.timezone and dialect != "sqlite" else "time", tick_us=tick)
    if isinstance(of, sa.Integer) and dialect == "duckdb":
        narrow = ((sa.SmallInteger, 16), (sa.BigInteger, 64))
        return Form("integer", bits=next((b for kind, b in narrow if isinstance(of, kind)), 32))
    kinds = ((sa.Boolean, "boolean"), (sa.Integer, "integer"), (sa.Date, "date"),
             (sa.types._Binary, "binary"))  # fmt: skip
    return Form(next((kind for known, kind in kinds if isinstance(of, known)), ""))


def holds(form: Form, spark: str, *, key: bool = False) -> bool:
    """Whether a column keeps every value of a Spark type, or refuses it with its row."""
    plain = spark.partition("(")[0]
    if form.kind not in _HOLDS.get(plain, ("text", "varchar")):
        return False
    if form.kind == "integer" and plain in _INTEGERS:
        return form.bits >= _INTEGERS[plain][0]
    if form.kind == "decimal" and form.digits is not None:
        given = spark[8:-1].split(",") if plain == "decimal" else (_INTEGERS[plain][1], 0)
        precision, scale = map(int, given)
        return precision - scale <= form.digits[0] and scale <= form.digits[1]
    return form.exact or not key


def new_type(spark: str, *, key: bool) -> Any:
    """Return the type of a new column for a Spark type."""
    plain = spark.partition("(")[0]
    if plain == "decimal":
        precision, scale = map(int, spark[8:-1].split(","))
        return sa.Numeric(precision, scale).with_variant(sa.Text(), "sqlite")
    if plain == "timestamp":
        made = sa.DateTime(timezone=True)
        made = made.with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
        return made.with_variant(sa.TIMESTAMP(timezone=True), "oracle")
    if plain == "timestamp_ntz":
        made = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
        return made.with_variant(sa.TIMESTAMP(), "oracle").with_variant(mssql.DATETIME2(), "mssql")
    if plain == "binary":
        if key:
            long = ("postgresql", "sqlite", "duckdb")
            return sa.VARBINARY(KEY_LENGTH).with_variant(sa.LargeBinary(), *long)
        return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
    known = {
        "boolean": sa.Boolean(), "tinyint": sa.SmallInteger(), "smallint": sa.SmallInteger(),
        "int": sa.Integer(), "bigint": sa.BigInteger(), "date": sa.Date(),
        **dict.fromkeys(
            ("float", "double"),
            sa.DOUBLE_PRECISION().with_variant(oracle.BINARY_DOUBLE(), "oracle"),
        ),
    }  # fmt: skip
    if plain in known:
        return known[plain]
    if not key:
        long = mysql.LONGTEXT(charset="utf8mb4")
        return sa.UnicodeText().with_variant(long, "mysql", "mariadb")
    made = sa.Unicode(KEY_LENGTH).with_variant(sa.Text(), "postgresql", "sqlite")
    for dialect, collation in (("mariadb", "utf8mb4_nopad_bin"), ("mysql", "utf8mb4_0900_bin")):
        exact = mysql.VARCHAR(KEY_LENGTH, charset="utf8mb4", collation=collation)
        made = made.with_variant(exact, dialect)
    return made.with_variant(mssql.NVARCHAR(KEY_LENGTH, collation="Latin1_General_BIN2"), "mssql")


# --- values


def values(
    column: pa.Array, name: str, form: Form, dialect: str, refused: Refusals, *, key: bool = False
) -> list[Any]:
    """Return a column's values as a driver takes them, None for those whose rows are `refused`."""
    column = checked(column, name, form, dialect, refused, key=key)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    listed: list[Any] = column.to_pylist()
    if form.kind == "instant":
        listed = [None if value is None else value.replace(tzinfo=timezone.utc) for value in listed]
    return listed


def checked(
    column: pa.Array, name: str, form: Form, dialect: str, refused: Refusals, *, key: bool = False
) -> pa.Array:
    """Return a column as its target holds it, null for values whose rows are `refused`."""

    def refuse(where: Any, reason: str) -> None:
        nonlocal column
        where = np.asarray(where, bool)
        if where.any():
            refused.add(where, f"its column {name!r} {reason}")
            column = null_where(pa.array(where), column)

    given = ~nulls(column)
    if form.kind == "text":
        column = as_text(column)
        refuse(not_utf8(column), "is not UTF-8")
        _refuse_texts(column, form, dialect, key, refuse)
    elif form.kind in ("date", "instant", "time"):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz and "UTC"))
        day = 1 if pa.types.is_date(column.type) else _DAY_US
        at = numbers(since_1970(column))
        outside = (at < _YEAR_1 * day) | (at >= _YEAR_10000 * day)
        refuse(given & outside, "is not within the years 1 to 9999")
        if form.tick_us > 1:
            refuse(given & (at % form.tick_us != 0), "has more digits of a second than the column")
    elif form.kind in ("double", "float"):
        number = numbers(column.cast(pa.float64()))
        column = column.cast(pa.float64())
        if key:  # MySQL groups -0.0 and 0.0 as two, DuckDB NaN of other bits; their indexes do not
            column = pc.if_else(pc.is_nan(column), float("nan"), pc.add(column, 0.0))
        if dialect not in _NAN:
            refuse(given & np.isnan(number), "is NaN, which the database has not")
        if dialect not in _INFINITE:
            refuse(given & np.isinf(number), "is infinite, which no number of the database is")
    elif form.kind == "integer":
        column = column.cast(pa.int64())
    return column


def _refuse_texts(
    texts: pa.Array, form: Form, dialect: str, key: bool, refuse: Callable[[Any, str], None]
) -> None:
    if form.length is not None:
        long = pc.greater(pc.utf8_length(texts), pa.scalar(form.length, pa.int32()))
        refuse(_true(long), f"has more than the {form.length} characters of the column")
    if form.most_bytes is not None:
        cut = numbers(pc.fill_null(pc.binary_length(texts), 0)) > form.most_bytes
        refuse(
            cut & _true(pc.ends_with(texts, " ")), "ends in spaces that the column has no room for"
        )
    if form.utf16:
        altered = _true(pc.match_substring_regex(texts, "[\ufffe\uffff]"))
        refuse(altered, "has U+FFFE or U+FFFF, for which a database in UTF-16 takes another letter")
    if dialect == "oracle":
        refuse(_true(pc.equal(texts, "")), "is the empty text, which is null in Oracle")
    if key and form.padded:
        refuse(_true(pc.ends_with(texts, " ")), "is a key that ends in a space")


def _true(conditions: pa.Array) -> Any:
    return numbers(conditions.fill_null(False).cast(pa.uint8())).astype(bool)
