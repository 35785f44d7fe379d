"""The recipes for write-ahead sinks, each on its real system, which is asked how often it has each
row: the example killed as its README says; a process killed within a sending; the same with the
system's memory of ids gone, which must double the rows. In `make chaos` also the example killed at
each point, its server too, and the conformance suite."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import pkgutil
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import seamark as sm
from seamark.spark.spark_versions import HAS_READ_LIMITS
from seamark.verify.conformance import (
    LineConformance,
    LineUnderTest,
    SinkUnderTest,
    WriteAheadConformance,
)
from tests.examples.example import EXAMPLES, Example, typed_lines
from tests.servers.clickhouse import ClickHouse
from tests.servers.nats import NatsServer
from tests.servers.needed import needed
from tests.servers.opensearch import OpenSearch

for directory in ("opensearch-by-id", "nats-message-id", "clickhouse-token"):
    sys.path.append(str(EXAMPLES / directory))  # for child processes, too

TOKEN = sm.EpochToken("c0ffee00c0ffee00", "out", 7)
ids = itertools.count()


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return rows with ids of their own: a repeated number is another row."""
    return pa.record_batch(
        {
            "id": pa.array([next(ids) for _ in numbers], pa.int64()),
            "number": pa.array(numbers, pa.int64()),
            "value": pa.array(map(str, numbers), pa.string()),
        }
    )


class OnOpenSearch:
    """The system of one recipe. `sends`: what its sink calls, and for which time behind the first
    third of an epoch."""

    example, variable = "opensearch-by-id", "OPENSEARCH"
    sends = ("opensearch_sink.urlopen", 2)

    def __init__(self, server: OpenSearch) -> None:
        self.server, self.url = server, server.url

    def sink(self, name: str) -> Any:
        from opensearch_sink import OpenSearchSink

        self.server.make_index(name, id="long", number="long", value="keyword")
        return OpenSearchSink(self.url, name, id="id")

    def numbers(self, name: str) -> list[int]:
        found = sorted(self.server.documents(name), key=lambda row: row["id"])
        return [row["number"] for row in found]

    def orders(self) -> list[int]:
        return [row["id"] for row in self.server.documents("orders")]

    def drop_orders(self) -> None:
        self.server.ask("DELETE", "orders?ignore_unavailable=true")


class OnNats:
    example, variable = "nats-message-id", "NATS"
    sends = ("nats.js.JetStreamContext.publish_async", 6)

    def __init__(self, server: NatsServer) -> None:
        self.server, self.url = server, server.url

    def sink(self, name: str, window_s: float = 3600) -> Any:
        from nats_sink import NatsSink

        self.server.make_stream(name, name, window_s)
        return NatsSink(self.url, name, name)

    def numbers(self, name: str) -> list[int]:
        return list(map(int, self.server.messages(name, name)))

    def orders(self) -> list[int]:
        return [json.loads(text)["id"] for text in self.server.messages("orders", "orders.new")]

    def drop_orders(self) -> None:
        self.server.drop_stream("orders")


class OnClickHouse:
    example, variable = "clickhouse-token", "CLICKHOUSE"
    sends = ("clickhouse_sink.urlopen", 3)

    def __init__(self, server: ClickHouse) -> None:
        self.server, self.url = server, server.url

    def sink(self, name: str, window: int = 1000) -> Any:
        from clickhouse_sink import ClickHouseSink

        self.server.ask(
            f"CREATE TABLE `{name}` (id Int64, number Int64, value String) ENGINE = MergeTree "
            f"ORDER BY id SETTINGS non_replicated_deduplication_window = {window}"
        )
        return ClickHouseSink(self.url, name, rows_per_insert=5)

    def numbers(self, name: str) -> list[int]:
        return list(map(int, self.server.ask(f"SELECT number FROM `{name}` ORDER BY id").split()))

    def orders(self) -> list[int]:
        return list(map(int, self.server.ask("SELECT id FROM orders").split()))

    def drop_orders(self) -> None:
        self.server.ask("DROP TABLE IF EXISTS orders")


@pytest.fixture(scope="module")
def opensearch() -> Iterator[OnOpenSearch]:
    with needed("OpenSearch"), OpenSearch() as server:
        yield OnOpenSearch(server)


@pytest.fixture(scope="module")
def nats() -> Iterator[OnNats]:
    with needed("NATS"):
        server = NatsServer()
    with server:
        yield OnNats(server)


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[OnClickHouse]:
    with needed("ClickHouse's engine"):
        server = ClickHouse()
    with server:
        yield OnClickHouse(server)


@pytest.fixture(params=["opensearch", "nats", "clickhouse"], scope="module")
def system(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An index, stream or table of the test's own."""
    return "t" + re.sub(r"\W", "", request.node.name.lower())[-40:] + str(next(ids))


needs_datagen = pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
POINTS = ("rows-sent:1", "sent-recorded:1", "decided:1", "rows-sent:2")
"""The third run sends what the second has decided, and the fourth what the third has."""


@pytest.fixture
def here(example: Callable[..., Example], system: Any) -> Example:
    """The system's example; its target is made as its README says."""
    made = example(system.example, **{system.variable: system.url})
    system.drop_orders()
    made.type(commands(made)[0])
    return made


def commands(here: Example) -> list[str]:
    """Return its README's lines about the target: the first makes it, the last counts."""
    return [line for line in typed_lines(here.readme) if re.match("curl|python stream", line)]


@needs_datagen
def test_killed_as_its_readme_says(here: Example, system: Any) -> None:
    here.die("SEAMARK_FAILPOINT=rows-sent:2 python app.py")
    assert sorted(system.orders()) == list(range(40))
    here.type("python app.py")
    assert sorted(system.orders()) == list(range(60))
    assert "60" in re.findall(r"\d+", here.type(commands(here)[-1]))


def dies_within(sends: str, nth: int, sink: sm.WriteAheadSink, rows: list[pa.RecordBatch]) -> None:
    """In a process of its own: die when the sink makes this call for the nth time."""
    place, _, method = sends.rpartition(".")
    owner, calls = pkgutil.resolve_name(place), itertools.count(1)
    real = getattr(owner, method)

    def counted(*given: Any, **more: Any) -> Any:
        if next(calls) == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **more)

    setattr(owner, method, counted)
    sink.send(iter(rows), TOKEN)


def send_thrice(system: Any, sink: sm.WriteAheadSink, name: str) -> list[int]:
    """Send an epoch of fifteen rows: a process dies when a third is there, and it is sent twice by
    another. Return what the system has then."""
    rows = [batch(range(start, start + 5)) for start in (0, 5, 10)]
    process = multiprocessing.get_context("spawn").Process(
        target=dies_within, args=(*system.sends, sink, rows)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert system.numbers(name) == [0, 1, 2, 3, 4]
    for _ in range(2):
        sink.send(iter(rows), TOKEN)
    return system.numbers(name)


def test_killed_within_a_sending(system: Any, name: str) -> None:
    assert send_thrice(system, system.sink(name), name) == list(range(15))


def test_another_epoch_with_the_same_rows_is_not_dropped(system: Any, name: str) -> None:
    sink = system.sink(name)
    for epoch in (7, 8):
        sink.send(iter([batch([1, 2, 3])]), replace(TOKEN, epoch=epoch))
    assert system.numbers(name) == [1, 2, 3] * 2


def test_nats_forgets_ids_behind_its_window(nats: OnNats, name: str) -> None:
    """The limit of its guarantee, and the look that finds it at the start."""
    sink = nats.sink(name, window_s=0.1)
    with pytest.raises(sm.PreflightError, match=r"duplicate_window is 0\.1 s, below window_s"):
        sink.check_target()
    rows = [batch([1, 2, 3])]
    sink.send(iter(rows), TOKEN)
    time.sleep(1)
    sink.send(iter(rows), TOKEN)
    assert nats.numbers(name) == [1, 2, 3] * 2


def test_clickhouse_keeps_no_tokens_unless_told(clickhouse: OnClickHouse, name: str) -> None:
    sink = clickhouse.sink(name, window=0)
    with pytest.raises(sm.PreflightError, match="non_replicated_deduplication_window = 1000"):
        sink.check_target()
    doubled = [*range(15), *range(15), *range(5)]
    assert sorted(send_thrice(clickhouse, sink, name)) == sorted(doubled)


def test_clickhouse_forgets_tokens_behind_its_window(clickhouse: OnClickHouse, name: str) -> None:
    sink = clickhouse.sink(name, window=2)
    sink.check_target()
    first = [batch([1])]
    sink.send(iter(first), TOKEN)
    for epoch in (8, 9):
        sink.send(iter([batch([epoch])]), replace(TOKEN, epoch=epoch))
    sink.send(iter(first), TOKEN)
    assert clickhouse.numbers(name) == [1, 1, 8, 9]


_FIT = {
    "Int64": pa.array([2**31 - 1], pa.int32()),
    "Nullable(Int64)": pa.array([2**63 - 1, None], pa.int64()),
    "Float64": pa.array([0.1]),
    "Bool": pa.array([True]),
    "LowCardinality(Nullable(String))": pa.array(["é", None]),
    "Date32": pa.array([date(1900, 1, 1)]),
    "DateTime64(6, 'UTC')": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6)], pa.timestamp("us", "UTC")),
    "Decimal(10, 3)": pa.array([Decimal("1.239")], pa.decimal128(10, 3)),
    "Array(Nullable(Int64))": pa.array([[1, None]], pa.list_(pa.int64())),
    "Tuple(a Int64)": pa.array([{"a": 1}], pa.struct([("a", pa.int64())])),
    "Map(String, Int64)": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
}
_ALTERED = {
    "Int32": pa.array([2**40 + 5], pa.int64()),
    "UInt32": pa.array([-5], pa.int64()),
    "Float32": pa.array([16777217.0]),
    "Int64": pa.array([1.7]),
    "DateTime('UTC')": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6)], pa.timestamp("us", "UTC")),
    "DateTime64(3, 'UTC')": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6)], pa.timestamp("us", "UTC")),
    "Decimal(10, 2)": pa.array([Decimal("1.239")], pa.decimal128(10, 3)),
    "DateTime64(6, 'Asia/Tokyo')": pa.array([datetime(2026, 1, 2)], pa.timestamp("us")),
    "FixedString(5)": pa.array(["ab"]),
    "Array(Int32)": pa.array([[2**40]], pa.list_(pa.int64())),
    "Tuple(a Int8)": pa.array([{"a": 300}], pa.struct([("a", pa.int64())])),
}


def _table_of(clickhouse: OnClickHouse, name: str, kind: str) -> Any:
    from clickhouse_sink import ClickHouseSink

    clickhouse.server.ask(
        f"CREATE TABLE `{name}` (v {kind}) ENGINE = MergeTree ORDER BY tuple() "
        "SETTINGS non_replicated_deduplication_window = 9"
    )
    return ClickHouseSink(clickhouse.url, name)


@pytest.mark.parametrize("kind", _FIT)
def test_clickhouse_has_what_was_sent(clickhouse: OnClickHouse, name: str, kind: str) -> None:
    sink, values = _table_of(clickhouse, name, kind), _FIT[kind]
    sink.send(iter([pa.record_batch({"v": values})]), TOKEN)
    found = clickhouse.server.ask(f"SELECT v FROM `{name}`").splitlines()
    assert len(found) == len(values)
    assert [text == r"\N" for text in found] == [value is None for value in values.to_pylist()]


@pytest.mark.parametrize("kind", _ALTERED)
def test_clickhouse_alters_no_value(clickhouse: OnClickHouse, name: str, kind: str) -> None:
    """By itself it wraps, rounds and cuts without a word."""
    sink = _table_of(clickhouse, name, kind)
    with pytest.raises(sm.SendRefusedError, match="may alter values"):
        sink.send(iter([pa.record_batch({"v": _ALTERED[kind]})]), TOKEN)
    assert clickhouse.server.ask(f"SELECT count() FROM `{name}`").strip() == "0"


@pytest.mark.parametrize("kind", ["Int64", "String"])
def test_clickhouse_makes_no_default_of_a_null(
    clickhouse: OnClickHouse, name: str, kind: str
) -> None:
    sink = _table_of(clickhouse, name, kind)
    nulls = pa.array([None], pa.int64() if kind == "Int64" else pa.string())
    with pytest.raises(ConnectionError, match="NULL"):
        sink.send(iter([pa.record_batch({"v": nulls})]), TOKEN)
    assert clickhouse.server.ask(f"SELECT count() FROM `{name}`").strip() == "0"


@pytest.mark.parametrize(("window", "times"), [(0, 2), (1000, 1)])
def test_a_view_of_clickhouse_needs_a_window_of_its_own(
    clickhouse: OnClickHouse, name: str, window: int, times: int
) -> None:
    sink = clickhouse.sink(name)
    clickhouse.sink(f"{name}behind", window)
    clickhouse.server.ask(
        f"CREATE MATERIALIZED VIEW {name}view TO {name}behind AS SELECT * FROM {name}"
    )
    rows = [batch([1, 2, 3])]
    for _ in range(2):
        sink.send(iter(rows), TOKEN)
    assert clickhouse.numbers(name) == [1, 2, 3]
    assert sorted(clickhouse.numbers(f"{name}behind")) == sorted([1, 2, 3] * times)


def test_opensearch_keeps_the_newest_version(opensearch: OnOpenSearch, name: str) -> None:
    """An older epoch, of a driver that wakes up late, takes nothing back."""
    sink = replace(opensearch.sink(name), id="value", version="number")
    old, new = (pa.record_batch({"id": [n], "number": [n], "value": ["one"]}) for n in (1, 2))
    for rows in (old, new, new, old):
        sink.send(iter([rows]), TOKEN)
    assert opensearch.numbers(name) == [2]


def test_opensearch_takes_times_decimals_and_bytes(opensearch: OnOpenSearch, name: str) -> None:
    from opensearch_sink import OpenSearchSink

    opensearch.server.make_index(name, at="date", day="date", price="keyword", raw="binary")
    sink = OpenSearchSink(opensearch.url, name, id="id")
    row = {"id": 1, "at": datetime(2026, 1, 2, 3, tzinfo=timezone.utc), "day": date(2026, 1, 2)}
    row |= {"price": Decimal("1.20"), "raw": b"\0\xff"}
    sink.send(iter([pa.RecordBatch.from_pylist([row])]), TOKEN)
    (found,) = opensearch.server.documents(name)
    assert found == {
        "id": 1, "at": "2026-01-02T03:00:00+00:00", "day": "2026-01-02", "price": "1.20",
        "raw": "AP8=",
    }  # fmt: skip


def test_opensearch_refuses_rows_that_it_cannot_have(opensearch: OnOpenSearch, name: str) -> None:
    sink = opensearch.sink(name)
    with pytest.raises(sm.PreflightError, match="create the index"):
        replace(sink, index="nobody").check_target()
    odd = pa.record_batch({"id": ["a"], "number": ["no number"]})
    with pytest.raises(sm.SendRefusedError, match=r"id 'a': .*failed to parse"):
        sink.send(iter([odd]), TOKEN)
    with pytest.raises(sm.SendRefusedError, match="id is null"):
        sink.send(iter([pa.record_batch({"id": pa.array([None], pa.int64())})]), TOKEN)


@pytest.mark.chaos
@needs_datagen
def test_killed_at_each_point_and_its_server_too(here: Example, system: Any) -> None:
    for point in POINTS:
        done = here.run("env", f"SEAMARK_FAILPOINT={point}", "python", "app.py")
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.stderr}"
        system.server.kill()
        system.server.restart()
    done = here.run("python", "app.py")
    assert done.returncode == 0, done.stderr
    assert sorted(system.orders()) == list(range(60))


@pytest.mark.chaos
class TestConformance(WriteAheadConformance):
    test_a_line_is_cut = LineConformance.test_a_commit_whose_line_is_cut_is_proved

    @pytest.fixture
    def under(self, system: Any, name: str) -> SinkUnderTest:
        sink = system.sink(name)

        def through(port: int) -> Any:
            return replace(sink, url=system.url.replace(str(system.server.port), str(port)))

        return SinkUnderTest(
            sink,
            batch,
            lambda: system.numbers(name),
            writer_failpoint="write-ahead-written",
            commit_failpoints=("sent-recorded",),
            line=LineUnderTest("127.0.0.1", system.server.port, through),
        )
