"""`seamark dev kafka`: run local brokers until the user ends them. The brokers: `dev/kafka.py`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from seamark.dev.kafka import LocalKafka


def run_local_kafka(
    brokers: int, directory: Path | None, announce: Callable[[LocalKafka], None]
) -> None:
    """Start `brokers` brokers, call `announce` once they answer, and wait for Ctrl-C or SIGTERM.

    Called from the main thread of a process that does nothing else: it takes over both signals.
    `directory` None keeps nothing. When it returns or raises, every broker has ended.

    Raises what `LocalKafka.start` raises when the brokers cannot be started, and what
    `LocalKafka.check` raises when one ends by itself.
    """
    # SIGINT too: a shell that starts us in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        with LocalKafka(brokers, directory) as kafka:
            announce(kafka)
            while True:
                time.sleep(0.5)
                kafka.check()
    except KeyboardInterrupt:
        pass  # the way to end it


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
