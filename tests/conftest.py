"""The needs of every test: Spark's Python workers are this Python, Spark stays on loopback, and no
driver outlives its test. Also the order of the files, the tests left out of `make test`, and those
for which a run with an end has no time.

The broker's fixtures are in `integration/conftest.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import core
from tests.chaos.driver import Driver
from tests.class_archive import JAVA_OPTIONS, LAUNCHER_OPTIONS
from tests.servers.azurite import AzuriteServer
from tests.servers.disk import SmallDisk
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.storage_servers import TWO_CORES, serving
from tests.threads import nothing_is_left

# Set for the whole process, for programs started by tests to inherit.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
# Else each of a thousand processes compiles Seamark anew, and each worker of pytest all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Where a test says nothing else. On four cores a driver that lives for seconds takes a fifth more
# CPU: twice the Python workers, and twice the tasks of an epoch that has few rows.
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"{TWO_CORES} pyspark-shell")
# The tokens left behind by jobs of killed drivers are no business of the user's own.
os.environ.setdefault("SEAMARK_HOME", tempfile.mkdtemp(prefix="seamark-home-"))
# A shell lets its background programs ignore Ctrl-C, and all their children would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup a process stopped at a failpoint would go on for a moment as its parent is killed, for
# it ignores the hangup that ends it elsewhere. A handler is not inherited, other than SIG_IGN.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

LONGEST = (
    "integration/jobs/test_real_time.py",
    "integration/jobs/test_unaligned.py",
    "integration/jobs/test_transactions.py",
    "integration/jobs/test_kafka_to_kafka.py",
    "integration/jobs/test_write_stream.py",
    "integration/storage/test_kills.py",
    "integration/jobs/test_restarts.py",
    "spark/operations/test_operators_day.py",
    "newcomer/test_demo.py",
    "spark/plans/test_planned_query.py",
    "spark/jobs/test_keyed_process.py",
    "simulation/test_every_call.py",
    "spark/plans/test_slow_programs.py",
    "spark/checkpoints/test_replayed_state.py",
    "spark/plans/test_batch_oracle.py",
    "integration/jobs/test_two_sinks.py",
    "integration/jobs/test_postgres.py",
    "spark/savepoints/test_savepoint_verbs.py",
    "integration/jobs/test_shared_day.py",
    "integration/jobs/test_audit.py",
    "integration/jobs/test_debezium.py",
    "integration/jobs/test_redis.py",
    "integration/jobs/test_mysql.py",
    "integration/jobs/test_sql.py",
    "spark/savepoints/test_restore_plan.py",
    "integration/jobs/test_two_drivers.py",
    "spark/operations/test_rest.py",
    "integration/jobs/test_delta.py",
    "integration/jobs/test_iceberg.py",
    "integration/jobs/test_embedded.py",
    "examples/test_local.py",
    "integration/jobs/test_files.py",
    "examples/test_kafka.py",
    "spark/savepoints/test_restore.py",
    "examples/test_databases.py",
    "integration/jobs/test_restore.py",
    "integration/jobs/test_spark_submit.py",
    "spark/jobs/test_failures.py",
    "integration/cluster/test_cluster.py",
)
"""The files longer than a minute. They come first: a long file at the end would keep the other
workers waiting."""

WAITING = (
    "integration/kafka/test_sink_conformance.py",
    "unit/checkpoint/test_faulty_storage.py",
    "integration/storage/test_hangs.py",
    "integration/mysql/test_sink_conformance.py",
    "integration/kafka/test_sink_preflight.py",
    "integration/postgres/test_sink_conformance.py",
    "conformance/test_files.py",
    "integration/postgres/test_sink_crash.py",
    "integration/kafka/test_sink_transactions.py",
    "integration/redis/test_sink_conformance.py",
    "integration/sql/test_sink_crash.py",
    "integration/sql/test_sink_conformance.py",
)
"""Files nearly as long that wait, for deadlines and disks, more than they compute. One comes after
every second of `LONGEST`: the others have the cores meanwhile."""


TERMINAL: list[Any] = []
"""Pytest's own, where it shows dots alone."""

UNTIL = "SEAMARK_TESTS_UNTIL"
"""The end of a run with ``--minutes``, for pytest's workers."""
ORDER = "SEAMARK_TESTS_ORDER"
"""What the order of its files comes from: all workers need the same."""

left_out: Counter[str] = Counter()
"""How many tests of each folder `make test` leaves to `make test-all`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes",
        type=float,
        help="core first, and after so many minutes no other test; what comes before the end "
        "differs from commit to commit",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.minutes is not None:
        os.environ.setdefault(UNTIL, str(time.time() + 60 * config.option.minutes))
        os.environ.setdefault(ORDER, _commit())


def _commit() -> str:
    """Return the commit; where git does not tell, the day."""
    where = ["-c", "safe.directory=*", "-C", str(Path(__file__).parent)]
    with contextlib.suppress(OSError):
        git = ["git", *where, "rev-parse", "HEAD"]
        done = subprocess.run(git, capture_output=True, text=True, check=False)
        if commit := done.stdout.strip():
            return commit
    return time.strftime("%F")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what a run with an end has no time for."""
    is_over = time.time() > float(os.environ.get(UNTIL, "inf"))
    if is_over and item.get_closest_marker("full"):
        pytest.skip("this run's time is over: `make test-all` without MINUTES has every test")


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and session.config.get_verbosity() == 0:
        TERMINAL.append(terminal)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first; within a file, and among the others, nothing moves. In a run
    with an end, the core comes first, then the other files in an order of the commit's: over the
    commits, each of them comes before the end of slow machines too."""
    core.mark(items)
    order = list(LONGEST)
    for number, name in enumerate(WAITING):
        order.insert(3 * number + 2, name)
    places = {Path(__file__).parent / name: place for place, name in enumerate(order)}
    items.sort(key=lambda item: places.get(item.path, len(order)))
    if config.option.minutes is not None:
        first = {item.path for item in items if not item.get_closest_marker("full")}
        items.sort(key=lambda item: "" if item.path in first else _digest(item))


def _digest(item: pytest.Item) -> str:
    name = item.nodeid.partition("::")[0]
    return hashlib.sha256((os.environ[ORDER] + name).encode()).hexdigest()


def pytest_deselected(items: list[pytest.Item]) -> None:
    left_out.update(core.left_out(items))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # xdist's workers select, its controller tells
        session.config.workeroutput["left_out"] = dict(left_out)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Name a test of a long file when it begins: the first dots come minutes later."""
    if TERMINAL and nodeid.removeprefix("tests/").startswith(LONGEST):
        TERMINAL[0].ensure_newline()
        TERMINAL[0].write_line(f"{nodeid} runs")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out.clear()
    left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Below pytest's own last line, also with ``-q``."""
    if left_out and "not full" in config.option.markexpr and not hasattr(config, "workerinput"):
        config.get_terminal_writer().line(core.what_is_left(left_out))


@pytest.fixture(autouse=True)
def no_driver_is_left() -> Iterator[None]:
    """A failed or timed-out test may have left drivers; they never end. Drivers from before it
    belong to fixtures of several tests."""
    before = set(Driver.living)
    yield
    for driver in Driver.living - before:
        driver.kill_tree()


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    """A failed test may have left a job in the shared Spark session: no later job of its name could
    start."""
    with nothing_is_left():
        yield


@pytest.fixture(autouse=True)
def no_switch_is_left() -> Iterator[None]:
    """A worker that a test has played sets it in this process: all workers of a Spark that is begun
    later would hide their tracebacks."""
    yield
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


@pytest.fixture(scope="session")
def hdfs() -> Iterator[LocalHdfs]:
    """A NameNode and a DataNode; a test may kill one, and brings it back."""
    yield from serving(LocalHdfs)


@pytest.fixture(scope="session")
def s3() -> Iterator[LocalS3]:
    """An S3 server; a test may kill it, and brings it back."""
    yield from serving(LocalS3)


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    """A disk of the test's own."""
    yield from serving(SmallDisk)


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A server with Google's storage interface."""
    yield from serving(GcsServer)


@pytest.fixture(scope="session")
def azure() -> Iterator[AzuriteServer]:
    """A server with the interface of Azure's blobs."""
    yield from serving(AzuriteServer)
