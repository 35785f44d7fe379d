"""Guarantee levels, end to end and per sink: the vocabulary of `explain`.

The rule that combines them is `guarantees/end_to_end.py`.
"""

from __future__ import annotations

from enum import Enum


class Guarantee(Enum):
    """What a reader of a sink sees of each input row after any failure, weakest first."""

    NONE = "none"
    """Nothing holds over the end of the program: rows may be missing, or written again."""
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class SinkWay(Enum):
    """How a sink takes part in a checkpoint; `guarantees/end_to_end.py` says what each is worth."""

    NONE = "none"
    WRITE_AHEAD_LOG = "write-ahead log"
    WRITE_AHEAD_LOG_WITH_TOKEN = "write-ahead log with a token"  # which the target keeps
    IDEMPOTENT = "idempotent"
    TWO_PHASE_COMMIT = "two-phase commit"
