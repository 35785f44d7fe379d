"""The channel state of an epoch: rows read from the sources and not yet written to the sinks.

`run/in_flight.py` writes and drains it; `checkpoint/store.py` stores it in the prepared record,
beside the transactions, so that one decision covers both. Format: docs/FORMAT.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from seamark.contracts.spool import SpoolFile, parse_path
from seamark.model.records import read_as

CHANNEL_STATE = "channel-state"
"""The directory of all epochs' rows, below the job's checkpoint directory."""


@dataclass(frozen=True)
class Segment:
    """The rows of one file after the first `skip`. A file is never rewritten."""

    file: SpoolFile
    skip: int = 0

    @property
    def rows(self) -> int:
        """The rows still to be written to the sinks."""
        return self.file.rows - self.skip

    @property
    def size_bytes(self) -> int:
        """The stored bytes of these rows, about."""
        return self.file.size_bytes * self.rows // self.file.rows


Lane = tuple[Segment, ...]
"""Rows of one task, in order."""


@dataclass(frozen=True)
class Stage:
    """The rows left by one epoch's stream, a lane for each task. All rows of a stage come before
    any row of the next; lanes are independent of each other.

    `uids`, `columns` and `types` are the layout of the rows (`run/layout.py`). `processes` are
    the sinks whose rows are still to go through their `sm.process`; None in older records: all that
    have one.
    """

    uids: tuple[str, ...]
    columns: tuple[str, ...]
    lanes: tuple[Lane, ...]
    processes: tuple[str, ...] | None = None
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChannelState:
    """The stages of one epoch, oldest first; none is empty.

    While rows of keyed operators wait, `event_times` has the greatest event time seen at each
    watermark of the plan, in milliseconds; None for none (`run/held_watermark.py`).
    """

    stages: tuple[Stage, ...] = ()
    event_times: tuple[int | None, ...] = ()

    @staticmethod
    def of(stages: Sequence[Stage]) -> "ChannelState":
        """Return the state without empty lanes and stages."""
        filled = (replace(stage, lanes=tuple(filter(None, stage.lanes))) for stage in stages)
        return ChannelState(tuple(stage for stage in filled if stage.lanes))

    def segments(self) -> Iterator[Segment]:
        """Yield all segments, oldest stage first."""
        return (each for stage in self.stages for lane in stage.lanes for each in lane)

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(segment.rows for segment in self.segments())

    @property
    def size_bytes(self) -> int:
        """The stored bytes of all rows, about."""
        return sum(segment.size_bytes for segment in self.segments())

    @property
    def oldest_epoch(self) -> int | None:
        """The epoch of the oldest file; None without rows."""
        epochs = (parse_path(segment.file.path) for segment in self.segments())
        return min((name.epoch for name in epochs if name is not None), default=None)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the stored form of the stages."""
        return [asdict(stage) for stage in self.stages]

    @staticmethod
    def from_json(
        stages: Sequence[Mapping[str, Any]], event_times: Sequence[int | None] = ()
    ) -> "ChannelState":
        """Read `to_json`'s form; raises KeyError, TypeError or ValueError for any other."""
        state = ChannelState(
            tuple(read_as(Stage, each, newer=True) for each in stages), tuple(event_times)
        )
        for segment in state.segments():
            if parse_path(segment.file.path) is None:
                raise ValueError(f"{segment.file.path!r} is not the path of a channel-state file")
        return state


NO_CHANNEL_STATE = ChannelState()


def lanes_of(lanes: Sequence[Any]) -> tuple[Lane, ...]:
    """Read lanes in `asdict`'s form; raises KeyError, TypeError or ValueError for any other."""
    return tuple(tuple(read_as(Segment, each) for each in lane) for lane in lanes)
