"""What became of each sink's transactions in this driver, counted as they end.

`checkpoint/sink_commits.py` counts; the Prometheus metrics show it under Flink's names. One thread
counts at a time; what another reads of it may be a moment old.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass


@dataclass
class CommitCounts:
    """Transactions of one sink.

    `committed`, `already_committed`: after the decision, by the answer. `retried`: answers that
    told nothing yet. `lost`: proved gone, or not known to be visible; those whose rows are written
    again from a spool are in `rewritten` instead. `aborted`: of epochs that were stored and not
    decided. `lingering_aborted`: of attempts that were never stored.
    """

    committed: int = 0
    already_committed: int = 0
    retried: int = 0
    lost: int = 0
    rewritten: int = 0
    aborted: int = 0
    lingering_aborted: int = 0


class SinkCounts(defaultdict[str, CommitCounts]):
    """The counts by the sink's uid; they outlive the runs of a job that is restarted."""

    def __init__(self) -> None:
        super().__init__(CommitCounts)
