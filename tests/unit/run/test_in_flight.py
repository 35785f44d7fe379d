"""The task's side of channel state: slices until a deadline, files of the rest, and lanes."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pyarrow as pa
import pytest

from seamark.checkpoint.channel_state import ChannelState, Segment, Stage
from seamark.contracts.sink import WriterContext
from seamark.contracts.spool import SpoolFile
from seamark.files import HadoopSettings
from seamark.model.errors import CorruptRecordError
from seamark.run import in_flight
from seamark.run.in_flight import Deadline, Overflow, Pace, read_lane, rest_of
from seamark.run.pre_commit import Order


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(first, first + count))})


def numbers(batches) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def context(uri: Path) -> WriterContext:
    return WriterContext(
        job_id="job",
        sink_uid="",
        generation=1,
        epoch=7,
        partition_id=0,
        attempt=3,
        settled_epoch=6,
        hadoop=HadoopSettings(),
        spool_uri=str(uri),
    )


def test_without_a_limit_all_rows_are_written_in_slices_that_grow() -> None:
    pace, written = Pace(Deadline(time.time(), math.inf, slice_rows=2)), []
    assert pace.write(rows(0, 1000), written.append) == 1000
    assert numbers(written) == list(range(1000))
    assert [batch.num_rows for batch in written[:3]] == [2, 8, 32]
    assert not pace.is_over


def test_after_the_deadline_a_tenth_of_a_second_is_written() -> None:
    """The deadline passed long ago, as in an epoch that runs again."""
    pace, written = Pace(Deadline(time.time() - 3600, 1.0, slice_rows=1)), []

    def write(batch: pa.RecordBatch) -> None:
        time.sleep(0.01 * batch.num_rows)
        written.append(batch)

    count = pace.write(rows(0, 1000), write)
    assert 1 <= count < 100
    assert numbers(written) == list(range(count))
    assert pace.is_over
    assert pace.write(rows(0, 5), write) == 0
    assert 1 <= pace.slice_rows <= 10, "ten rows take a tenth of a second"


def test_one_slow_row_is_enough() -> None:
    pace = Pace(Deadline(time.time(), 0.0, slice_rows=1))
    assert pace.write(rows(0, 9), lambda batch: time.sleep(0.2)) == 1


def test_behind_rows_of_earlier_epochs_nothing_is_written() -> None:
    pace = Pace(Deadline(time.time(), math.inf, at_once=True))
    assert pace.write(rows(0, 9), lambda batch: pytest.fail("written")) == 0
    assert pace.rows == 0


def test_a_clock_ahead_gives_no_more_than_the_epoch_has() -> None:
    pace = Pace(Deadline(time.time() + 3600, 0.0))
    pace.write(rows(0, 1), lambda batch: time.sleep(in_flight.SLICE_S))
    assert pace.is_over


def test_a_lane_is_read_from_its_place_over_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "_FILE_BYTES", 2000)
    uri = tmp_path / "channel-state"
    overflow = Overflow(context(uri))
    for first in range(0, 1000, 100):
        overflow.write(rows(first, 120).slice(0, 100))
    lane = overflow.finish()
    assert len(lane) > 2
    for skipped in (0, 1, 99, 100, 101, 299, 300, 999):
        left = rest_of(lane, skipped)
        assert numbers(read_lane(left, str(uri), HadoopSettings())) == list(range(skipped, 1000))
        assert sum(segment.rows for segment in left) == 1000 - skipped
        again = rest_of(left, 1)
        assert again == rest_of(lane, skipped + 1)
    assert rest_of(lane, 1000) == ()
    (uri / lane[1].file.path).unlink()
    with pytest.raises(CorruptRecordError, match="channel-state/7/"):
        list(read_lane(lane, str(uri), HadoopSettings()))


def test_structs_of_several_sinks_survive_slices(tmp_path: Path) -> None:
    """As `Layout.split` reads them: a slice's struct column has an offset."""
    column = pa.array([{"a": n} if n % 3 else None for n in range(30)])
    batch = pa.RecordBatch.from_arrays([column], ["s0"]).slice(7, 11)
    overflow = Overflow(context(tmp_path / "channel-state"))
    overflow.write(batch)
    (read,) = read_lane(overflow.finish(), str(tmp_path / "channel-state"), HadoopSettings())
    assert read.equals(batch)


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    overflow = Overflow(context(tmp_path / "channel-state"))
    overflow.write(rows(0, 10))
    overflow.finish()
    overflow.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_order_with_lanes_goes_through_a_local_property() -> None:
    file = SpoolFile("/s", f"3/g1-e3-p0-a0-{'0' * 32}.arrow", 10, 500, 77)
    order = Order(4, 3, deadline=Deadline(1.5, math.inf), lanes=((Segment(file, 2),), ()))
    assert Order.from_text(order.to_text()) == order
    assert Order.from_text(Order(4, 3).to_text()) == Order(4, 3)


def test_the_stored_form() -> None:
    name = "g1-e3-p0-a9-0123456789abcdef0123456789abcdef"
    lane = (Segment(SpoolFile("/s", f"3/{name}.arrow", 10, 500, 77), 4),)
    stage = Stage(("out",), ("a", "b"), ((), lane))
    state = ChannelState.of([stage, Stage(("out",), (), ((),))])
    assert state.stages == (Stage(("out",), ("a", "b"), (lane,)),)
    assert (state.rows, state.size_bytes, state.oldest_epoch) == (6, 300, 3)
    assert ChannelState.from_json(state.to_json()) == state
    assert ChannelState.of([]).oldest_epoch is None
    with pytest.raises(ValueError, match="is not the path"):
        ChannelState.from_json(
            [
                {
                    "uids": [],
                    "columns": [],
                    "lanes": [[{"file": {**vars(lane[0].file), "path": "../x"}, "skip": 0}]],
                }
            ]
        )
