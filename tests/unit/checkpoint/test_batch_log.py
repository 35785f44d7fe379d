"""The stored log: entries come back as written, old ones go, the newest decision stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint.batch_log import KEPT, StoredLog, identity_of
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.files.local import LocalDirectory
from seamark.model.errors import CorruptRecordError
from seamark.protocol.batches import Begun, Decided, newest_decision, newest_try


def decided(batch: int, attempt: int) -> Decided:
    return Decided(batch, "q", attempt, 1, SinkEpoch(3, (b"one", b"two")))


def test_entries_come_back(tmp_path: Path) -> None:
    log = StoredLog(LocalDirectory(tmp_path))
    assert log.append(1, Begun(1))
    assert not log.append(1, Begun(7))
    assert log.append(2, decided(0, 1))
    assert log.append(3, Begun(1))
    again = StoredLog(LocalDirectory(tmp_path))
    assert again.entries() == {2: decided(0, 1), 3: Begun(1)}
    assert newest_decision(again.entries()) == decided(0, 1)
    assert newest_try(again.entries()) == 3
    assert again.entry(1) == Begun(1)


def test_tries_without_a_decision_never_push_the_newest_decision_out(tmp_path: Path) -> None:
    log = StoredLog(LocalDirectory(tmp_path))
    log.append(1, Begun(1))
    log.append(2, decided(0, 1))
    for number in range(3, 3 * KEPT):
        log.append(number, Begun(number))
        log.tidy()
    assert newest_decision(StoredLog(LocalDirectory(tmp_path)).entries()) == decided(0, 1)


def test_old_entries_go(tmp_path: Path) -> None:
    log = StoredLog(LocalDirectory(tmp_path))
    log.append(1, Begun(1))  # a try that died: decisions have odd numbers behind it
    for batch in range(KEPT):
        log.append(2 * batch + 2, Begun(2))
        log.append(2 * batch + 3, decided(batch, 2 * batch + 2))
        log.tidy()
    numbers = log.numbers()
    assert numbers[-1] == 2 * KEPT + 1
    assert KEPT <= len(numbers) <= KEPT + 20


def test_what_a_newer_decision_follows_is_committed_without_its_mark(tmp_path: Path) -> None:
    """For a run that was asleep while its mark was deleted."""
    log = StoredLog(LocalDirectory(tmp_path))
    for number in (1, 3):
        log.append(number, Begun(1))
        log.append(number + 1, decided(number // 2, number))
        assert not log.is_committed(number + 1)
    assert StoredLog(LocalDirectory(tmp_path)).is_committed(2)
    log.mark_committed(4)
    assert log.is_committed(4)


def test_a_listing_that_has_missed_an_entry_hides_no_decision(tmp_path: Path) -> None:
    """A directory is listed in pieces; meanwhile an entry comes in a piece that was read already,
    and the next one in a piece that was not."""
    log = StoredLog(LocalDirectory(tmp_path))
    log.append(1, Begun(1))
    log.append(2, decided(0, 1))
    log.append(3, Begun(3))

    class Pieces(LocalDirectory):
        def list(self, path: str) -> list[str]:
            return [name for name in super().list(path) if name != "2.json"]

    assert newest_decision(StoredLog(Pieces(tmp_path)).entries()) == decided(0, 1)


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    log = StoredLog(LocalDirectory(tmp_path))
    log.append(1, Begun(1))
    (tmp_path / "log/1.json").write_text("{")
    with pytest.raises(CorruptRecordError, match=r"log/1\.json"):
        StoredLog(LocalDirectory(tmp_path)).entries()


def test_the_identity_is_made_once(tmp_path: Path) -> None:
    first = identity_of(LocalDirectory(tmp_path), "orders")
    assert identity_of(LocalDirectory(tmp_path), "orders") == first
    assert first.job_id != identity_of(LocalDirectory(tmp_path / "other"), "orders").job_id
