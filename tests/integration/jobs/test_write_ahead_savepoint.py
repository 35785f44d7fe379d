"""A savepoint of a job with its write-ahead targets away has their rows, and a job restored from it
sends them: with the first job's directory gone, beside it, and after it.

How: jobs in this process over two HTTP endpoints. One keeps its tokens; the other one answers 503
while the savepoint is taken. The rows of each are counted one by one.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import DamagedCheckpointError, SeamarkError
from seamark.run import checkpoint_trigger
from seamark.savepoints.take import uncommitted
from seamark.spark.session import spark_session
from tests.chaos.driver import wait_until
from tests.servers.http_endpoint import HttpEndpoint
from tests.threads import RunningJob

AWAY = [503] * 10_000


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session("tests")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A savepoint waits a second for the sinks' commits, instead of ten."""
    for module in (checkpoint_trigger, uncommitted):
        monkeypatch.setattr(module, "SINK_PATIENCE_S", 1.0)


class Files:
    """Input files of five numbers, each an epoch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._numbers = itertools.count()

    def add(self) -> list[int]:
        number = next(self._numbers)
        numbers = list(range(5 * number, 5 * number + 5))
        hidden = self.directory / f".{number}"
        hidden.write_text("\n".join(json.dumps({"number": n}) for n in numbers))
        hidden.rename(self.directory / f"{number}.json")
        return numbers


def declare(home: Path, name: str, endpoints: dict[str, HttpEndpoint], **config: Any) -> sm.Job:
    storage = str(home / "store")
    job = sm.Job(name, sm.CheckpointConfig(storage=storage, interval="100ms", **config))
    source = sm.FileSource(
        str(home / "in"), format="json", schema="number BIGINT",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = job.source(source, "in")
    for uid, endpoint in endpoints.items():
        url = f"{endpoint.url}/rows" + ("?keep" if uid == "kept" else "")
        job.sink(rows, sm.WriteAheadSink.http(url, idempotent=uid == "kept"), uid)
    return job


def spool_files(job: Path) -> list[Path]:
    return [path for path in (job / "wal").rglob("*") if path.is_file()]


def keys(endpoint: HttpEndpoint) -> list[str]:
    return [headers["Idempotency-Key"] for _, headers in endpoint.ask("/requests")]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("forked", [False, pytest.param(True, marks=pytest.mark.chaos)])
def test_rows_that_were_not_sent_go_along(
    tmp_path: Path,
    endpoints: dict[str, HttpEndpoint],
    spark: SparkSession,
    *,
    forked: bool,
) -> None:
    kept, plain = endpoints["kept"], endpoints["plain"]
    files = Files(tmp_path / "in")
    seen = Counter(files.add())
    first = RunningJob(declare(tmp_path, "first", endpoints))
    first.wait_for_epochs(1)
    plain.ask("/script", AWAY)
    waiting = files.add()
    wait_until("the sink that is there has them", lambda: kept.rows() == [*seen, *waiting], 60)
    path = Path(first.take("stop_with_savepoint", tmp_path / "savepoints").removeprefix("file:"))
    with pytest.raises(SeamarkError):
        first.join()  # it could not commit its last epoch
    record = sm.Savepoint(path).record
    assert set(record.committables) == {"plain"}, "what the other one has been sent stays out"
    assert record.files.keys() >= {p.relative_to(path).as_posix() for p in spool_files(path)}
    assert [file.parent.relative_to(path / "wal").as_posix() for file in spool_files(path)] == [
        "plain/1"
    ]

    # Moved, damaged, and with the first job's directory gone.
    moved, store = tmp_path / "moved", tmp_path / "store"
    path.rename(moved)
    (store / "first").rename(tmp_path / "gone")
    (file,) = spool_files(moved)
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DamagedCheckpointError, match=file.name):
        declare(tmp_path, "heir", endpoints).run(str(moved))
    assert not (store / "heir").exists()
    file.write_bytes(data)
    plain.ask("/script", [])
    asked = len(keys(plain))
    heir = RunningJob(declare(tmp_path, "heir", endpoints), restore=str(moved))
    wait_until(
        "the heir has sent them", lambda: Counter(plain.rows()) == seen + Counter(waiting), 90
    )
    assert keys(plain)[asked].startswith(record.job_id), "the token is the first job's"
    own = Counter(files.add())
    heir.wait_for_epochs(1)
    heir.end()
    everything = seen + Counter(waiting) + own
    assert Counter(kept.rows()) == Counter(plain.rows()) == everything
    assert spool_files(store / "heir") == []

    if not forked:
        return
    # The first job comes back, and sends its epoch itself, with the same token, for which it was
    # never told that the rows are there; what it reads itself is its own.
    (tmp_path / "gone").rename(store / "first")
    again = RunningJob(declare(tmp_path, "first", endpoints))
    everything += Counter(waiting) + own
    wait_until("it is through", lambda: Counter(plain.rows()) == everything, 90)
    again.end()
    assert Counter(kept.rows()) == everything - Counter(waiting)
    assert keys(plain)[-2] == keys(plain)[asked]
    # Now its directory says that the rows are sent: nobody else sends them.
    third = RunningJob(declare(tmp_path, "third", endpoints), restore=str(moved))
    third.wait_for_epochs(1)
    third.end()
    assert Counter(plain.rows()) == everything + own


@pytest.mark.chaos
def test_a_retained_checkpoint_of_two_epochs_that_wait(
    tmp_path: Path, endpoints: dict[str, HttpEndpoint], spark: SparkSession
) -> None:
    """Both are decided, and their job never starts again."""
    kept, plain = endpoints["kept"], endpoints["plain"]
    files = Files(tmp_path / "in")
    everything = Counter(files.add())
    first = RunningJob(declare(tmp_path, "first", endpoints, max_concurrent_checkpoints=2))
    first.wait_for_epochs(1)
    plain.ask("/script", AWAY)
    commits = tmp_path / "store/first/spark/commits"
    for epoch in (1, 2):
        everything.update(files.add())
        wait_until("it is decided", lambda epoch=epoch: (commits / str(epoch)).exists(), 60)
    with pytest.raises(SeamarkError):
        first.end()
    assert not (tmp_path / "store/first/epochs/1/committed.json").exists()
    plain.ask("/script", [])
    heir = declare(tmp_path, "heir", endpoints)
    checkpoint = str(tmp_path / "store/first")
    plan = heir.restore_plan(checkpoint)
    assert {sink.uid: sink.commit for sink in plan.sinks} == {"kept": 2, "plain": 2}
    started = RunningJob(heir, restore=checkpoint)
    wait_until("both are sent", lambda: Counter(plain.rows()) == everything, 90)
    started.end()
    assert Counter(kept.rows()) == everything


@pytest.mark.chaos
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("concurrent", [2, 4])
def test_a_job_ends_with_a_savepoint_while_two_epochs_wait(
    tmp_path: Path,
    endpoints: dict[str, HttpEndpoint],
    spark: SparkSession,
    concurrent: int,
) -> None:
    """Both go along; of the first, the reachable sink has its rows."""
    kept, plain = endpoints["kept"], endpoints["plain"]
    files = Files(tmp_path / "in")
    everything = Counter(files.add())
    first = RunningJob(declare(tmp_path, "first", endpoints, max_concurrent_checkpoints=concurrent))
    first.wait_for_epochs(1)
    plain.ask("/script", AWAY)
    commits = tmp_path / "store/first/spark/commits"
    for epoch in (1, 2):
        everything.update(files.add())
        wait_until("it is decided", lambda epoch=epoch: (commits / str(epoch)).exists(), 60)
    path = first.take("stop_with_savepoint", tmp_path / "savepoints")
    with pytest.raises(SeamarkError):
        first.join()
    record = sm.Savepoint(path).record
    assert (record.epoch, list(record.earlier)) == (2, ["1"])
    epochs = sorted((f.parent.parent.name, f.parent.name) for f in spool_files(Path(path[5:])))
    assert sorted(set(epochs)) == [("kept", "2"), ("plain", "1"), ("plain", "2")]
    (tmp_path / "store/first").rename(tmp_path / "gone")
    plain.ask("/script", [])
    heir = declare(tmp_path, "heir", endpoints)
    assert {s.uid: s.commit for s in heir.restore_plan(path).sinks} == {"kept": 1, "plain": 2}
    started = RunningJob(heir, restore=path)
    wait_until("both are sent", lambda: Counter(plain.rows()) == everything, 90)
    everything.update(files.add())
    started.wait_for_epochs(1)
    started.end()
    assert Counter(kept.rows()) == Counter(plain.rows()) == everything
    assert [key.split("-")[-1] for key in keys(plain)[-3:]] == ["1", "2", "3"], "in order"
