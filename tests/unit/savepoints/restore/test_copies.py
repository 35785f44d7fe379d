"""How: a silent file is a FIFO without a writer: to open it blocks, as on a mount that is away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seamark.checkpoint.channel_state import ChannelState, Segment, Stage
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.spool import SpoolFile
from seamark.files.local import LocalDirectory
from seamark.model.errors import StorageHangsError
from seamark.savepoints.restore import checkpoint


def test_a_storage_that_hangs_while_rows_are_copied_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "COPY_S", 0.3)
    source, target = (
        CheckpointStore(LocalDirectory(tmp_path / name), LocalDirectory(tmp_path / name / "spark"))
        for name in ("old", "new")
    )
    file = SpoolFile(source.channel_state_uri, "3/rows.arrow", 1, 10, 0)
    state = ChannelState((Stage(("orders",), ("n",), ((Segment(file),),)),))
    monkeypatch.setattr(source, "channel_state", lambda epoch: state)
    silent = tmp_path / "old/channel-state/3/rows.arrow"
    silent.parent.mkdir(parents=True)
    os.mkfifo(silent)
    try:
        with pytest.raises(
            StorageHangsError, match=r"to copy a file of file://.*/old into file://"
        ):
            checkpoint.copy_channel_state(source, target, 3)
    finally:
        os.close(os.open(silent, os.O_RDWR | os.O_NONBLOCK))  # lets the reader go
