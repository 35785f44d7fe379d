"""The queue of a driver's epochs by itself. The coordinator's tests and the simulation have the
rest."""

from __future__ import annotations

import pytest

from seamark.checkpoint.epoch_queue import EpochQueue
from seamark.checkpoint.task_reports import EpochProgress
from seamark.protocol.states import AttemptState


@pytest.mark.parametrize("in_turn", [False, True])
def test_spark_is_not_late_with_an_epoch_that_waits_for_a_commit(in_turn: bool) -> None:
    """Else a sink that is away for longer than the checkpoint timeout would fail the run."""
    epochs = EpochQueue(2, 0.0)
    epochs.in_turn = in_turn
    assert epochs.awaits_spark
    progress = EpochProgress(0, 1, AttemptState.SEALED, started_s=0.0)
    epochs.begin(progress)
    epochs.add(progress)
    assert not epochs.awaits_spark
    assert epochs.is_full is in_turn
    epochs.committed(progress)
    assert epochs.awaits_spark
    assert not epochs.is_full
