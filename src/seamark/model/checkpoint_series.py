"""The figures of a checkpoint history over time, by column: what a plot takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.checkpointing_statistics import checkpoints
from seamark.model.phases import Phases, phases
from seamark.model.rates import lag, records_in, records_out
from seamark.model.stats_summary import UNKNOWN

LONGEST = 1000

_FIGURES: Mapping[str, Callable[[CheckpointStatistics], Any]] = {
    "id": lambda c: c.id,
    "trigger_timestamp": lambda c: c.trigger_timestamp,
    "status": lambda c: c.status.value,
    "end_to_end_duration": lambda c: c.end_to_end_duration,
    "checkpointed_size": lambda c: c.checkpointed_size,
    "state_size": lambda c: c.state_size,
    "persisted_data": lambda c: c.persisted_data,
    "processed_data": lambda c: c.processed_data,
    "records_in": records_in,
    "records_out": records_out,
    "lag": lag,
}
_PHASES: Mapping[str, Callable[[Phases], int]] = {
    "read_and_process": lambda p: p.read_and_process,
    "pre_commit": lambda p: p.pre_commit,
    "decision": lambda p: p.decision,
    "commit": lambda p: p.commit,
}


def series(history: Sequence[CheckpointStatistics], since: int = 0) -> dict[str, list[Any]]:
    """Return the columns of the checkpoints that were triggered at `since` (ms since 1970) or
    later, oldest first, at most the newest LONGEST. None is a figure that is not known. Savepoints
    are left out: they have no phases.

    `history` is newest first, as in `CheckpointingStatistics`. Whoever draws a plot asks again from
    the last trigger that he has seen completed: what was in progress then is there once more.
    """
    shown = [c for c in checkpoints(history) if c.trigger_timestamp >= since][:LONGEST][::-1]
    times = [phases(checkpoint) for checkpoint in shown]
    columns = {name: [figure(c) for c in shown] for name, figure in _FIGURES.items()}
    columns |= {name: [figure(p) for p in times] for name, figure in _PHASES.items()}
    return {
        name: [None if value == UNKNOWN else value for value in column]
        for name, column in columns.items()
    }
