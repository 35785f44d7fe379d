"""Dates, times and decimals as text: one form for every target, and back.

It is Spark's ``CAST(… AS STRING)``, with six digits of a second, timestamps in UTC with a ``Z``.
So a text of the years 0 to 9999 sorts like time; other years have a sign, as in Spark.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import integers, text_scalar

_CYCLE_DAYS = 146_097  # 400 years: the calendar repeats
_FIRST_DAY, _END_DAY = -719_528, 2_932_897  # 0000-01-01, 10000-01-01
_DAY_US = 86_400_000_000
_NOT = pa.nulls(1).is_valid()[0]  # `pa.scalar(False)` would import pandas
_SIGNED = re.compile(r"([+-]\d+)-(.*)", re.DOTALL)


def as_text(values: pa.Array) -> pa.Array:
    """Return dates, timestamps and decimals as text, other values as they are."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return _plain_digits(values)
    if pa.types.is_timestamp(kind):
        return _of_times(values.cast(pa.timestamp("us", kind.tz and "UTC")), _DAY_US)
    return _of_times(values.cast(pa.date32()), 1) if pa.types.is_date(kind) else values


def times_of_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the dates or timestamps that `as_text` made the texts of; `kind` is their type."""
    day, plain = (1, pa.date32()) if pa.types.is_date(kind) else (_DAY_US, pa.timestamp("us"))
    texts = pc.replace_substring(texts.cast(pa.string()), "Z", "")
    signed = pc.fill_null(pc.match_substring_regex(texts, "^[+-]"), False)
    shifts = np.zeros(len(texts), np.int64)
    if pc.any(signed).as_py():
        listed = texts.to_pylist()
        for index in np.flatnonzero(signed).tolist():
            match = _SIGNED.fullmatch(listed[index])
            year, rest = (int(match[1]), match[2]) if match else (0, listed[index])
            shifts[index] = (year - 2000) // 400
            listed[index] = f"{2000 + year % 400}-{rest}"
        texts = pa.array(listed, pa.string())
    numbers = since_1970(texts.cast(plain))
    numbers = pc.add(numbers, pa.array(shifts * (_CYCLE_DAYS * day)))
    return (numbers.cast(pa.int32()) if day == 1 else numbers).cast(kind)


def since_1970(times: pa.Array) -> pa.Array:
    """Return days of dates, microseconds of timestamps."""
    return times.cast(pa.int32() if pa.types.is_date(times.type) else pa.int64()).cast(pa.int64())


def _of_times(times: pa.Array, day: int) -> pa.Array:
    if pa.types.is_timestamp(times.type) and times.type.tz is not None:
        # Arrow fails at the years 32768 and -32768 of a type with a zone.
        plain = _of_times(times.cast(pa.timestamp("us")), day)
        return pc.binary_join_element_wise(plain, text_scalar("Z"), text_scalar(""))
    texts, numbers = times.cast(pa.string()), since_1970(times)
    first, end = integers([_FIRST_DAY * day, _END_DAY * day])
    odd = pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end)), _NOT)
    if not pc.any(odd).as_py():
        return texts
    # Arrow has no year beyond 16 bits, and no sign for one above 9999.
    cycles, rest = np.divmod(numbers.filter(odd).to_numpy(), _CYCLE_DAYS * day)
    near = pa.array(rest.astype(np.int32 if day == 1 else np.int64)).cast(times.type)
    years = [
        (int(text[:4]) + 400 * int(cycle), text[4:])
        for text, cycle in zip(near.cast(pa.string()).to_pylist(), cycles, strict=True)
    ]
    signed = [f"{year:+05d}{text}" if year > 0 else f"{year:05d}{text}" for year, text in years]
    return pc.replace_with_mask(texts, odd, pa.array(signed, pa.string()))


def _plain_digits(values: pa.Array) -> pa.Array:
    scale = values.type.scale
    if scale <= 6:
        return values.cast(pa.string())
    # Arrow writes a small number with an exponent, which some targets read as a double.
    whole = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(values), values.buffers(), offset=values.offset
    ).cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    parts = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(pc.starts_with(whole, "-"), text_scalar("-"), text_scalar(""))
    return pc.binary_join_element_wise(
        sign, pc.binary_join_element_wise(*parts, text_scalar(".")), text_scalar("")
    )
