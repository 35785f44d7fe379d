"""Guarantee levels, end to end and per sink: the vocabulary of `explain`.

`guarantees/end_to_end.py` combines them.
"""

from enum import Enum


class Guarantee(Enum):
    """How often a reader of a sink sees each input row after any failure, weakest first."""

    NONE = "none"
    """Nothing holds beyond the end of the program: rows may be missing, or written again."""
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class SinkWay(Enum):
    """A sink's part in a checkpoint; `guarantees/end_to_end.py` gives each its level."""

    NONE = "none"
    WRITE_AHEAD_LOG = "write-ahead log"
    WRITE_AHEAD_LOG_WITH_TOKEN = "write-ahead log with a token"  # the target keeps it
    IDEMPOTENT = "idempotent"
    TWO_PHASE_COMMIT = "two-phase commit"
