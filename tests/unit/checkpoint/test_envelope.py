"""How: seal a record, damage its bytes in every way a disk can, and open it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark.checkpoint.envelope import create_record, open_envelope, read_record, seal_envelope
from seamark.files.local import LocalDirectory
from seamark.model.errors import CorruptRecordError

BODY = {"epoch": 7, "sinks": {"orders": {"rows": 3, "committables": ["YQ=="]}}}


def test_a_record_opens_with_the_body_it_was_sealed_with() -> None:
    assert open_envelope("prepared", seal_envelope("prepared", BODY), "x") == BODY


def test_every_flipped_bit_is_found() -> None:
    data = seal_envelope("prepared", BODY)
    for position in range(len(data) - 1):  # the last byte is the newline
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptRecordError, match="epochs/7"):
                open_envelope("prepared", bytes(damaged), "epochs/7")


def test_every_truncation_is_found() -> None:
    data = seal_envelope("prepared", BODY)
    for length in range(len(data) - 1):
        with pytest.raises(CorruptRecordError):
            open_envelope("prepared", data[:length], "x")


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(CorruptRecordError, match="empty"):
        open_envelope("prepared", b"", "x")


def test_a_file_of_brackets_is_called_overwritten() -> None:
    with pytest.raises(CorruptRecordError, match="not JSON"):
        open_envelope("prepared", b"[" * 100_000, "x")


def test_another_kind_and_another_version_are_named() -> None:
    with pytest.raises(CorruptRecordError, match="not a seamark/sealed record"):
        open_envelope("sealed", seal_envelope("prepared", BODY), "x")
    newer = json.loads(seal_envelope("prepared", BODY)) | {"version": 2}
    with pytest.raises(CorruptRecordError, match="version 2"):
        open_envelope("prepared", json.dumps(newer).encode(), "x")


class Repeating(LocalDirectory):
    """Every answer of a create is lost, and its client repeats the request."""

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        super().create(path, data)


def test_a_record_whose_answer_was_lost_is_its_makers_and_nobody_elses(tmp_path: Path) -> None:
    for kind in ("lease", "prepared", "sealed", "committed", "started"):
        assert create_record(Repeating(tmp_path), kind, kind, BODY)
        # Two drivers could write the same body: no call takes another's record for its own.
        assert not create_record(LocalDirectory(tmp_path), kind, kind, BODY)
        assert not create_record(Repeating(tmp_path), kind, kind, BODY)
        assert read_record(LocalDirectory(tmp_path), kind, kind) == BODY
