"""How: a silent file is a FIFO without a writer: to open it blocks, as on a mount without its
server. The deadlines are cut to fractions of a second; in the end the FIFO is let go."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.api.config import CheckpointConfig
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.sink import SinkContext
from seamark.files import deadline
from seamark.files.deadline import CallHangsError, call_within, open_local
from seamark.model.errors import PreflightError, RecordNotStoredError, StorageHangsError
from tests.unit.checkpoint.memory_sink import MemorySink


@contextlib.contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Within the block: whoever opens `path` waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    try:
        yield
    finally:
        # Both ways: that opens it whoever waits, or whose wait is just begun again.
        writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        path.unlink()
        time.sleep(0.05)
        os.close(writer)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "CALL_S", 0.5)
    monkeypatch.setattr(deadline, "CALL_AGAIN_S", 0.1)


def test_a_call_that_hangs_is_given_up_and_the_next_one_sooner_until_one_returns(
    tmp_path: Path,
) -> None:
    files = open_local(tmp_path / "store")
    with hanging(tmp_path / "store/job.json"):
        for least_s in (0.5, 0.1):
            begun = time.monotonic()
            with pytest.raises(StorageHangsError, match=r"to read file://.*/job\.json has not"):
                files.read("job.json")
            assert time.monotonic() - begun >= least_s
        assert files.exists("job.json"), "a look at it does not hang"
        with pytest.raises(StorageHangsError, match=r"within 0\.5 s"):
            files.read("job.json")
    files.create("a", b"x")
    assert files.read("a") == b"x"


def test_what_a_call_raises_is_raised_and_its_thread_is_used_again() -> None:
    names = set()
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            call_within(5, lambda: Path("/nowhere/at/all").read_bytes())
        names.add(call_within(5, threading.get_ident))
    assert len(names) == 1


def test_a_thread_that_is_left_behind_is_not_given_another_call() -> None:
    leave = threading.Event()
    before = call_within(5, threading.current_thread)
    with pytest.raises(CallHangsError):
        call_within(0.05, leave.wait)
    assert call_within(5, threading.current_thread) is not before
    leave.set()
    assert all(thread.idle for thread in deadline._idle)
    before.join(60)
    assert not before.is_alive(), "it waits for a call that nobody makes"


def test_a_start_on_a_storage_that_hangs_ends_with_a_clear_error(tmp_path: Path) -> None:
    store = CheckpointStore(open_local(tmp_path), open_local(tmp_path / "spark"))
    job = CheckpointedJob("job", {"orders": MemorySink()}, store, CheckpointConfig())
    coordinator = Coordinator(job)
    with (
        hanging(tmp_path / "job.json"),
        pytest.raises(RecordNotStoredError, match=r"storage hangs.*start the job again"),
    ):
        coordinator.start()


def test_a_sink_whose_committer_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    class Hanging(MemorySink):
        def create_committer(self, context: SinkContext) -> Any:
            self.released.wait()

    sink = Hanging()
    store = CheckpointStore(open_local(tmp_path), open_local(tmp_path / "spark"))
    job = CheckpointedJob("job", {"orders": sink}, store, CheckpointConfig())
    coordinator = Coordinator(job, commit_deadline_s=0.3)
    with pytest.raises(PreflightError, match="'orders': create_committer has not returned"):
        coordinator.start()
    sink.released.set()
