"""The built-in workloads: each is a program of `jobs/`, with its topics, sinks and failpoints."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.dev.topics import make_topics
from seamark.protocol.points import Point
from seamark.verify import jobs
from seamark.verify.generator import KEYS, ROW_MS, WINDOW_MS
from seamark.verify.history import UNKNOWN
from seamark.verify.readers import (
    Numbering,
    WatchedTable,
    WatchedTopic,
    postgres_query,
    sqlite_query,
)
from seamark.verify.systems import Systems
from seamark.verify.trial import COUNTS, ROWS, Workload

PARTITIONS = 4
_TWO_DRIVERS = (Point.DECISION_VOIDED, Point.PLAN_VOIDED)
PROTOCOL = [point.value for point in Point if point not in _TWO_DRIVERS]
POINTS = {
    "kafka": ["transaction-begun", "transaction-flushed", "end-transaction-sent"],
    "postgres": ["transaction-prepared", "prepared-committed"],
    "sqlite": ["stage-written", "ledger-committed"],
}
"""The failpoints of the sinks that can be read back."""


@dataclass(frozen=True)
class BuiltIn:
    """A workload by name: `make` gets the systems, started, and a fresh directory."""

    needs_postgres: bool
    make: Callable[[str, Systems, Path], Workload]


def row(number: int) -> tuple[str, str]:
    """Return key and value: ``number,time_ms``."""
    return f"key-{number % KEYS}", f"{number},{number * ROW_MS}"


def _numbered(key: bytes, value: bytes) -> tuple[int, int]:
    try:
        return int(value.split(b",")[0]), 1
    except ValueError:
        return UNKNOWN, 1


def _counted(key: bytes, value: bytes) -> tuple[int, int]:
    try:
        start, count = value.split(b",")
        return int(start) // WINDOW_MS * KEYS + int(key.removeprefix(b"key-")), int(count)
    except ValueError:
        return UNKNOWN, 1


def numbered_by(name: str) -> Numbering:
    """Return what finds a row's number in a message's value: the field `name` of a JSON object, or
    the whole value."""

    def number(key: bytes, value: bytes) -> tuple[int, int]:
        try:
            row = json.loads(value)
            return int(row[name] if isinstance(row, dict) else row), 1
        except (ValueError, TypeError, KeyError, OverflowError):
            return UNKNOWN, 1

    return number


def create_topics(servers: str, *names: str) -> None:
    """Create topics of PARTITIONS partitions, where they are missing."""
    make_topics(servers, dict.fromkeys(names), partitions=PARTITIONS)


def _options(systems: Systems, **more: Any) -> str:
    create_topics(systems.kafka_direct, "verify-in", "verify-out")
    return json.dumps(
        {
            "servers": systems.kafka_for_job,
            "storage": systems.storage.as_uri(),
            "interval": "300ms",
            "timeout": "2min",
            "input": "verify-in",
            "output": "verify-out",
            "prefix": "verify",
            "transaction_timeout": "14min",
            **more,
        }
    )


def _program(name: str) -> str:
    return str(Path(jobs.__file__).with_name(name))


def _rows(name: str, systems: Systems, directory: Path) -> Workload:
    kafka = systems.kafka_direct
    sinks: list[Any] = [WatchedTopic("Kafka verify-out", ROWS, kafka, "verify-out", _numbered)]
    more, points = {}, [*PROTOCOL, *POINTS["kafka"]]
    if "postgres" in name:
        more["postgres"] = systems.postgres_for_job
        query = postgres_query(
            systems.postgres_direct, "verify_rows", "split_part(value, ',', 1)::bigint"
        )
        sinks.append(WatchedTable("PostgreSQL verify_rows", ROWS, query))
        points += POINTS["postgres"]
    command = [sys.executable, _program("rows.py"), _options(systems, **more)]
    return Workload(name, command, systems.storage / "rows", kafka, "verify-in", row, sinks, points)


def _windows(name: str, systems: Systems, directory: Path) -> Workload:
    kafka, database = systems.kafka_direct, directory / "sink.db"
    number = f"CAST(value AS INTEGER) / {WINDOW_MS} * {KEYS} + CAST(substr(key, 5) AS INTEGER)"
    times = "CAST(substr(value, instr(value, ',') + 1) AS INTEGER)"
    sinks = [
        WatchedTopic("Kafka verify-out", COUNTS, kafka, "verify-out", _counted),
        WatchedTable("SQLite windows", COUNTS, sqlite_query(database, "windows", number, times)),
        WatchedTable("SQLite events", ROWS, sqlite_query(database, "events", "value")),
    ]
    options = _options(systems, database=str(database))
    command = [sys.executable, _program("windows.py"), options]
    return Workload(
        name, command, systems.storage / "windows", kafka, "verify-in", row, sinks,
        [*PROTOCOL, *POINTS["kafka"], *POINTS["sqlite"]],
    )  # fmt: skip


WORKLOADS = {
    "kafka-to-kafka": BuiltIn(False, _rows),
    "kafka-to-kafka+postgres": BuiltIn(True, _rows),
    "windows": BuiltIn(False, _windows),
}
