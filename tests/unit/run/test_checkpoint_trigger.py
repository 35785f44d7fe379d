"""How: the requests of a trigger over a real queue of epochs; Spark's query is played."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.checkpoint.channel_state import ChannelState, Segment, Stage
from seamark.checkpoint.epoch_queue import EpochQueue
from seamark.contracts.spool import SpoolFile
from seamark.model.errors import UserError
from seamark.run.checkpoint_trigger import CheckpointTrigger

LEFT = Stage(("out",), ("n",), ((Segment(SpoolFile("file:///x", "0/x.arrow", 1, 1, 1)),),))


def test_an_epoch_that_begins_as_a_request_fails_is_not_held_for_it() -> None:
    now = {"begun": 1}  # the newest trigger of Spark's, which has ended without an epoch
    context = SimpleNamespace(currentTriggerStartTimestamp=lambda: now["begun"])
    status = SimpleNamespace(isTriggerActive=lambda: False, message=lambda: "")
    stream = SimpleNamespace(getLatestExecutionContext=lambda: context, status=lambda: status)
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: stream))
    epochs, began = EpochQueue(1, 0.0), threading.Event()
    coordinator: Any = SimpleNamespace(
        epochs=epochs, failure=None, last_stored=0, last_committed=0, last_sealed=0,
        channel_state=ChannelState((LEFT,)),
    )  # fmt: skip
    trigger = CheckpointTrigger("clicks", coordinator, threading.Event(), lambda: None)
    trigger.attach(query)

    def begin_epoch(_: object) -> None:
        trigger.epoch_begun(1)
        began.set()

    answer = trigger.ask(ahead=0)
    answer.add_done_callback(begin_epoch)  # as the request fails, on Spark's stream thread
    now["begun"] = 2
    with pytest.raises(UserError, match="rows of its last epoch wait"):
        answer.result(60)
    assert began.wait(60)
    with epochs.beginning(1):
        assert not epochs._is_pinned(2), "the stream waits for a savepoint that nobody takes"
