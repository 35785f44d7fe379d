"""The tests of `make test`, ten minutes on two cores; `make test-all` runs the others as well, and
`make test-spark` some of them on another Spark.

It has everything in `QUICK`, and of the tests with Spark, a server or a browser those in `CORE`:
each with its purpose beside it. Every other test gets the mark ``full``. `tests/README.md` has the
cost of both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

QUICK = (
    "unit/", "model/", "simulation/", "servers/", "chaos/",
    "docs/test_named_tests.py", "docs/test_python_blocks.py", "docs/test_shell_lines.py",
    "docs/test_troubleshooting.py", "test_core.py",
)  # fmt: skip

CORE = {
    # The protocol: a kill at each of its points, a restart, a fence, a savepoint.
    "integration/jobs/test_kafka_to_kafka.py": "a kill at each point, from Kafka to Kafka",
    "integration/jobs/test_two_sinks.py": "kills between the commits of two sinks",
    "integration/jobs/test_two_drivers.py": "a fence: two drivers of one job",
    "integration/jobs/test_restarts.py::test_bounded_job_commits_its_last_epoch_and_ends": (
        "a restart that commits what a dead driver has decided"
    ),
    "integration/jobs/test_restarts.py::test_decision_deleted_by_hand": (
        "a restart that puts a deleted decision back"
    ),
    "spark/savepoints/test_savepoints.py": "a savepoint, restored with other numbers of partitions",
    "spark/jobs/test_job.py": "each argument of a job; bounded runs",
    "spark/plans/test_branches.py": "one plan for several sinks",
    "spark/plans/test_watermarks.py": "no operator loses its watermark",
    "spark/plans/test_batch_oracle.py": "random programs beside Spark's batch run of them",
    "spark/session/test_worker_daemon.py": "the Python workers of a session",
    "spark/jobs/test_unaligned.py::test_a_bounded_job_ends_when_nothing_is_left": (
        "rows left by an epoch are written by the next"
    ),
    # Each sink under the conformance suite, on its real system.
    "integration/kafka/test_sink_conformance.py": "Kafka",
    "integration/postgres/test_sink_conformance.py": "PostgreSQL",
    "integration/mysql/test_sink_conformance.py::TestMariaDB": "MariaDB",
    "integration/redis/test_sink_conformance.py": "Redis",
    "integration/delta/test_sink_conformance.py": "Delta",
    "integration/iceberg/test_sink_conformance.py": "Iceberg",
    "conformance/test_files.py::TestFiles": "files on a local disk",
    "conformance/test_idempotent.py": "sinks of keyed rows",
    "conformance/test_sqlite.py": "SQLite",
    "conformance/test_write_ahead.py": "write-ahead",
    "integration/sql/test_sink_outcomes.py": "any SQL database: races on SQLite, DuckDB, servers",
    # A user's view.
    "dashboard/test_in_browser.py::test_checkpoints_appear_and_open_down_to_subtasks": (
        "a real browser, at two jobs that run"
    ),
    "dashboard/test_in_browser.py::test_a_driver_that_was_killed_is_shown_as_such": "the same",
    "docs/test_write_a_sink.py": "the page that writes a sink",
}

EVERY_SPARK = {
    "integration/jobs/test_kafka_to_kafka.py": "a kill at each point, without state",
    "integration/jobs/test_two_sinks.py": "kills between the commits of two sinks, with windows",
    "integration/jobs/test_restarts.py": "restarts after long, of bounded jobs, without a decision",
    "integration/jobs/test_unaligned.py": "kills with rows in flight",
    "integration/jobs/test_spark_examples.py": "examples of Spark's documentation, killed",
    "spark/jobs/test_unaligned.py": "unaligned checkpoints: bounded jobs, savepoints, restores",
    "spark/savepoints/test_canonical_savepoints.py": "each kind of state through savepoints",
    "spark/savepoints/test_savepoints.py": "a running job's savepoint, and its restore",
    "spark/savepoints/test_engine_upgrade.py": "the savepoints of every other Spark",
    "spark/savepoints/test_drain.py": "a drain, and its kills",
    "spark/savepoints/test_drain_operators.py": "a drain closes windows and joins",
    "spark/checkpoints/test_checkpoint_trigger.py": "a checkpoint on request",
    "spark/plans/test_branches.py": "one plan for several sinks",
    "spark/session/test_spark_versions.py": "what is refused, with the reason",
    "spark/streaming/test_data_source.py": "Seamark's sinks as a Python data source",
    "unit/run/test_executor_environment.py": "a task in an executor's environment",
    "unit/test_pyspark_missing.py": "a missing or too old PySpark",
}
"""The tests of `make test-spark`, on another Spark than the newest; as a program this module prints
them."""

OLDEST_SPARK = {
    name: EVERY_SPARK[name]
    for name in (
        "integration/jobs/test_spark_examples.py",
        "spark/jobs/test_unaligned.py",
        "spark/savepoints/test_savepoints.py",
        "spark/savepoints/test_engine_upgrade.py",
        "spark/savepoints/test_drain_operators.py",
        "spark/checkpoints/test_checkpoint_trigger.py",
        "spark/plans/test_branches.py",
        "spark/session/test_spark_versions.py",
        "spark/streaming/test_data_source.py",
    )
}
"""Those of `make test-oldest-spark`: few, and they reach all of `spark/spark_versions.py`. As a
program with the argument ``oldest`` this module prints them."""


def is_core(nodeid: str) -> bool:
    """Return whether `make test` runs a test."""
    name = nodeid.removeprefix("tests/")
    return name.startswith(QUICK) or any(
        name == core or name.startswith((f"{core}::", f"{core}[")) for core in CORE
    )


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark every test outside the core ``full``."""
    for item in items:
        if not is_core(item.nodeid):
            item.add_marker(pytest.mark.full)


def left_out(items: Iterable[pytest.Item]) -> Counter[str]:
    """Return, for each folder, the number of tests in `items` left to `make test-all`."""
    folders: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("full") and not item.get_closest_marker("chaos"):
            folders[Path(item.nodeid).parts[1]] += 1
    return folders


def what_is_left(folders: Counter[str]) -> str:
    """Return the line about the tests added by `make test-all`."""
    parts = ", ".join(f"{count} in {folder}" for folder, count in folders.most_common())
    return (
        f"`make test-all` adds {folders.total()} tests ({parts}): an hour on two cores. "
        "tests/README.md says which to run when."
    )


if __name__ == "__main__":
    print(*(f"tests/{name}" for name in (OLDEST_SPARK if "oldest" in sys.argv else EVERY_SPARK)))
