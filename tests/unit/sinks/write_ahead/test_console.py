"""The console, into a file: an epoch is written out when `send` returns: it is recorded next."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from seamark.contracts.write_ahead import EpochToken
from seamark.sinks.write_ahead import console
from seamark.sinks.write_ahead.epoch_spool import SpooledBatches


class Frame:
    def show(self, *_: object) -> None:
        print("rows")


def test_an_epoch_is_written_out_before_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    batches: Any = object.__new__(SpooledBatches)
    with monkeypatch.context() as patch:
        patch.setattr(console, "spooled_frame", lambda _: Frame())
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(written)))
        console.ConsoleSink().send(batches, EpochToken("job", "console", 7))
        seen = written.getvalue().decode()
    assert "Batch: 7" in seen
    assert seen.endswith("rows\n")
