"""The figures of a checkpoint history over time, by column, ready to plot. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.checkpointing_statistics import checkpoints
from seamark.model.phases import Phases, phases
from seamark.model.rates import lag, records_in, records_out
from seamark.model.stats_summary import UNKNOWN

LONGEST = 1000

_FIGURES: Mapping[str, Callable[[CheckpointStatistics, Phases], Any]] = {
    "id": lambda c, _: c.id,
    "trigger_timestamp": lambda c, _: c.trigger_timestamp,
    "status": lambda c, _: c.status.value,
    "end_to_end_duration": lambda c, _: c.end_to_end_duration,
    "read_and_process": lambda _, p: p.read_and_process,
    "pre_commit": lambda _, p: p.pre_commit,
    "decision": lambda _, p: p.decision,
    "commit": lambda _, p: p.commit,
    "checkpointed_size": lambda c, _: c.checkpointed_size,
    "state_size": lambda c, _: c.state_size,
    "persisted_data": lambda c, _: c.persisted_data,
    "processed_data": lambda c, _: c.processed_data,
    "records_in": lambda c, _: records_in(c),
    "records_out": lambda c, _: records_out(c),
    "lag": lambda c, _: lag(c),
}
FIGURES = tuple(_FIGURES)


def series(history: Sequence[CheckpointStatistics], since: int = 0) -> dict[str, list[Any]]:
    """Return the columns of the checkpoints triggered at `since` (ms since 1970) or later.

    They are oldest first, at most the newest LONGEST. None is an unknown figure. Savepoints are
    left out: they have no phases.

    `history` is newest first, as in `CheckpointingStatistics`. To continue a plot, ask again from
    the last trigger seen completed: checkpoints then in progress are included again.
    """
    shown = [c for c in checkpoints(history) if c.trigger_timestamp >= since][:LONGEST][::-1]
    known = [(checkpoint, phases(checkpoint)) for checkpoint in shown]
    columns = {name: [figure(*one) for one in known] for name, figure in _FIGURES.items()}
    return {
        name: [None if value == UNKNOWN else value for value in column]
        for name, column in columns.items()
    }
