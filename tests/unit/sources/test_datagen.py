"""DatagenSource and its generators: mistakes are refused by name, and rows are a pure function.

The rows are made by `spark.datagen.rows` in this process, without Spark; figures drawn from a
distribution are compared with it at a distance never reached by chance, the seed being fixed.
tests/spark/sources/test_datagen.py compares Spark's stream with the same function.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seamark.model.errors import ConfigurationError
from seamark.sources.datagen import DatagenSource
from seamark.sources.fields import Choice, EventTime, Field, RandomInt, Sequence, Text
from seamark.spark.datagen import rows

EVERY_FIELD: dict[str, Field] = {
    "at": EventTime("500ms"),
    "exactly at": EventTime(),
    "n": Sequence(-5),
    "price": RandomInt(-3, 4),
    "wide": RandomInt(-(2**63), 2**63 - 1),
    "color": Choice(["red", "green"], weights=[3, 1]),
    "rank": Choice([10, 20, 30], skew=1),
    "share": Choice([0.0, 0.5]),
    "flag": Choice([True, False]),
    "note": Text(13),
}


def made(count: int, **settings: Any) -> pa.RecordBatch:
    settings = {"rows_per_second": 7, "fields": EVERY_FIELD, **settings}
    return rows(DatagenSource(**settings).reader().options, 0, count)


def test_a_row_does_not_depend_on_how_the_stream_is_cut() -> None:
    options = DatagenSource(rows_per_second=7, fields=EVERY_FIELD).reader().options
    whole = rows(options, 0, 1000)
    pieces = [rows(options, start, start + 7) for start in range(0, 994, 7)]
    assert (
        pa.Table.from_batches(pieces).combine_chunks().to_batches()[0].equals(whole.slice(0, 994))
    )


def test_rows_are_the_same_in_every_release() -> None:
    # Recorded from the first release: a change here breaks the replay of running jobs.
    first = made(2).select(["price", "color", "rank", "flag", "note"]).to_pylist()
    assert first == FIRST_ROWS


def test_each_generator_keeps_its_bounds_and_proportions() -> None:
    batch = made(20_000)
    column = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in EVERY_FIELD}
    assert (column["n"] == np.arange(20_000) - 5).all()
    assert set(column["price"]) == set(range(-3, 4))
    assert np.bincount(column["price"] + 3).min() > 20_000 / 7 * 0.9
    assert column["wide"].min() < -(2**62)
    assert column["wide"].max() > 2**62
    assert abs((column["color"] == "red").mean() - 0.75) < 0.02
    # 1 + 1/2 + 1/3 = 11/6
    assert abs((column["rank"] == 10).mean() - 6 / 11) < 0.02
    assert abs((column["rank"] == 30).mean() - 2 / 11) < 0.02
    assert set(column["share"]) == {0.0, 0.5}
    assert abs(column["flag"].mean() - 0.5) < 0.02
    assert {len(note) for note in column["note"]} == {13}
    assert len(set(column["note"])) == 20_000


def test_columns_of_one_kind_are_independent() -> None:
    fields: dict[str, Field] = {"a": RandomInt(0, 1000), "b": RandomInt(0, 1000)}
    batch = made(1000, fields=fields)
    assert (batch.column("a").to_numpy() == batch.column("b").to_numpy()).mean() < 0.02


def test_another_seed_makes_other_rows() -> None:
    assert not made(100, seed=1).column("note").equals(made(100, seed=2).column("note"))


def test_event_time_goes_by_the_rate_and_out_of_order_no_further_than_said() -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    batch = made(700, start_time=start)
    exact = batch.column("exactly at").cast(pa.int64()).to_numpy()
    jittered = batch.column("at").cast(pa.int64()).to_numpy()
    assert exact[0] == start.timestamp() * 1_000_000
    assert (exact == exact[0] + np.arange(700) * 1_000_000 // 7).all()
    late = exact - jittered
    assert late.min() >= 0
    assert late.max() <= 500_000
    assert late.max() > 450_000


def test_event_time_does_not_overflow_late_in_a_long_stream() -> None:
    options = DatagenSource(rows_per_second=10**9, fields={"at": EventTime()}).reader().options
    row = 10**14
    found = rows(options, row, row + 1).column("at")[0].as_py()
    assert found == datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=row // 10**9)


def test_start_time_now_is_the_moment_of_the_first_start() -> None:
    source = DatagenSource(rows_per_second=1, start_time="now", fields={"at": EventTime()})
    found = rows(source.reader().options, 60, 61, started_ms=1_700_000_000_123)
    assert found.column("at").cast(pa.int64()).to_pylist() == [1_700_000_060_123_000]


def test_without_fields_it_is_a_click_stream() -> None:
    source = DatagenSource(rows_per_second=1000, number_of_rows=500)
    batch = rows(source.reader().options, 0, 500)
    assert batch.schema.names == ["timestamp", "user", "page", "row"]
    assert batch.schema.types == [pa.timestamp("us", "UTC"), pa.string(), pa.string(), pa.int64()]
    assert batch.column("row").to_pylist() == list(range(500))


def test_number_of_rows_bounds_the_source() -> None:
    assert DatagenSource(rows_per_second=1, number_of_rows=5).bounded
    assert not DatagenSource(rows_per_second=1).bounded
    assert DatagenSource(rows_per_second=1).replayable
    described = DatagenSource(rows_per_second=1, number_of_rows=5000).describe()
    assert described == "generated rows (timestamp, user, page, row), 5,000 rows"


def test_more_text_than_a_batch_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 214748 rows"):
        made(300_000, fields={"note": Text(10_000)})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rows_per_second": 0}, ["rows_per_second is 0", "1 to"]),
        ({"rows_per_second": 0.5}, ["rows_per_second is 0.5"]),
        ({"rows_per_second": True}, ["rows_per_second is True"]),
        ({"number_of_rows": 0}, ["number_of_rows is 0"]),
        ({"number_of_rows": "9"}, ["number_of_rows is '9'"]),
        ({"rows_per_epoch": -1}, ["rows_per_epoch is -1"]),
        ({"partitions": 0}, ["partitions is 0"]),
        ({"seed": 2**63}, ["seed is 9223372036854775808"]),
        ({"seed": "a"}, ["seed is 'a'"]),
        ({"start_time": "yesterday"}, ["start_time is 'yesterday'", "'now'"]),
        ({"start_time": "2026-01-01T00:00:00"}, ["start_time", "time zone"]),
        ({"start_time": datetime(2026, 1, 1)}, ["start_time", "tzinfo"]),
        ({"start_time": 5}, ["start_time is 5"]),
        ({"fields": {}}, ["fields is {}", "at least one"]),
        ({"fields": [Sequence()]}, ["fields is [", "EventTime()"]),
        ({"fields": {"": Sequence()}}, ["key ''"]),
        ({"fields": {"a": "sequence"}}, ["field 'a' is 'sequence'", "seamark.sources.fields"]),
        ({"fields": {"a": Sequence(), "A": Sequence()}}, ["names a, A", "case"]),
    ],
)
def test_a_mistake_in_the_source_is_named(settings: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="DatagenSource: ") as error:
        DatagenSource(**{"rows_per_second": 10, **settings})
    for part in named:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Sequence("1"), "Sequence: start is '1'"),  # type: ignore[arg-type]
        (lambda: RandomInt(5, 5), "RandomInt: low is 5 and high is 5; high must be greater"),
        (lambda: RandomInt(0.5, 2), "RandomInt: low is 0.5"),  # type: ignore[arg-type]
        (lambda: RandomInt(0, 2**63), "RandomInt: high is 9223372036854775808"),
        (lambda: Choice([]), "Choice: values is []"),
        (lambda: Choice("abc"), "Choice: values is 'abc'"),
        (lambda: Choice([1, "a"]), "Choice: values has the types int, str"),  # type: ignore[list-item]
        (lambda: Choice([None]), "Choice: values has the types NoneType"),  # type: ignore[list-item]
        (
            lambda: Choice([2**64]),
            "18446744073709551616; give a whole number from -9223372036854775808 to",
        ),
        (lambda: Choice([1, 2], skew=-1), "Choice: skew is -1"),
        (lambda: Choice([1, 2], skew=1, weights=[1, 2]), "weights and skew are both given"),
        (lambda: Choice([1, 2], weights=[1]), "Choice: weights is [1] for 2 values"),
        (lambda: Choice([1, 2], weights=[0, 0]), "not all 0"),
        (lambda: Choice([1, 2], weights=[1, -1]), "Choice: weights is [1, -1]"),
        (lambda: EventTime("soon"), "EventTime: out_of_orderness: 'soon' is not a duration"),
        (lambda: Text(0), "Text: size_bytes is 0; give a whole number from 1 to 10000"),
        (lambda: Text(10_001), "Text: size_bytes is 10001"),
    ],
)
def test_a_mistake_in_a_generator_is_named(build: Any, named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        build()
    assert named in str(error.value)


FIRST_ROWS = [
    {"price": 1, "color": "red", "rank": 30, "flag": False, "note": "YuZStfE-ovOlr"},
    {"price": 1, "color": "red", "rank": 20, "flag": True, "note": "WP9sjg50H8xFt"},
]
