"""The suite for sinks that write by key: tests what a job needs if no write can be taken back.

As in `suite.py`, writers and committers are real, on the real system. Rows are numbers with a
value; a reader sees one value for each number. A late writer may raise or be silent: only the
reader's view counts.
"""

import contextlib
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.model.guarantee import SinkWay
from seamark.verify.conformance.outages import soon
from seamark.verify.conformance.steps import (
    ServerUnderTest,
    attempt,
    committer,
    driver,
    in_child,
    ipc,
)


@dataclass(frozen=True)
class KeyedSinkUnderTest:
    """One configured idempotent sink on a fresh target, with everything that only its test knows.

    batch: makes a batch of one row per number, all with this value.
    shown: the value of each number, as seen by a reader of the target now.
    writer_failpoint: the failpoint at the end of `prepare_commit`; without one the writer's process
        is killed right after it.
    server: for `KeyedServerConformance`: kills and restarts the server.
    """

    sink: TwoPhaseCommitSink[Any]
    batch: Callable[[Sequence[int], int], pa.RecordBatch]
    shown: Callable[[], Mapping[int, int]]
    writer_failpoint: str = ""
    server: ServerUnderTest | None = None

    def write(self, context: Any, numbers: Sequence[int], value: int) -> Any:
        """Write the numbers as two batches and flush; return the writer."""
        writer = self.sink.create_writer(context)
        middle = len(numbers) // 2
        writer.write(self.batch(numbers[:middle], value))
        writer.write(self.batch(numbers[middle:], value))
        assert list(writer.prepare_commit()) == [], "there is nothing to commit"
        return writer

    def require(self, expected: Mapping[int, int]) -> None:
        """Assert that a reader sees exactly these values."""
        assert dict(self.shown()) == dict(expected)


class IdempotentConformance:
    """The tests. A subclass gives the fixture `keyed`: a `KeyedSinkUnderTest` with an empty
    target."""

    def test_rows_are_there_when_the_flush_returns(self, keyed: KeyedSinkUnderTest) -> None:
        """And nothing is left to commit or to abort."""
        side = committer(keyed, driver())
        keyed.write(attempt(), range(10), 1)
        keyed.require(dict.fromkeys(range(10), 1))
        assert list(side.list_lingering()) == []
        assert list(side.commit([])) == []
        assert list(side.abort([])) == []
        side.close()

    def test_the_newest_row_of_a_key_counts(self, keyed: KeyedSinkUnderTest) -> None:
        """Within a batch, from batch to batch, and from epoch to epoch."""
        committer(keyed, driver()).close()
        writer = keyed.sink.create_writer(attempt())
        both = [keyed.batch([1, 2, 3], 1), keyed.batch([1, 2], 2)]
        writer.write(pa.Table.from_batches(both).combine_chunks().to_batches()[0])
        writer.write(keyed.batch([1], 3))
        writer.prepare_commit()
        keyed.require({1: 3, 2: 2, 3: 1})
        keyed.write(attempt(epoch=1), [2], 4)
        keyed.require({1: 3, 2: 4, 3: 1})

    def test_a_replay_by_the_next_driver_changes_nothing(self, keyed: KeyedSinkUnderTest) -> None:
        """The epoch was written in full, but not decided."""
        for generation in (1, 2, 3):
            committer(keyed, driver(generation)).close()
            keyed.write(attempt(generation), range(10), 1)
            keyed.require(dict.fromkeys(range(10), 1))

    def test_what_a_writer_killed_after_its_flush_wrote_is_written_again(
        self, keyed: KeyedSinkUnderTest
    ) -> None:
        """No driver learned of the flush: the next driver runs the epoch again."""
        committer(keyed, driver(1)).close()
        rows = keyed.batch(range(10), 1)
        status, _ = in_child(
            keyed.sink, "write", attempt(1), ipc(rows), die=not keyed.writer_failpoint,
            failpoint=keyed.writer_failpoint,
        )  # fmt: skip
        assert status == -signal.SIGKILL
        keyed.require(dict.fromkeys(range(10), 1))
        committer(keyed, driver(2)).close()
        keyed.write(attempt(2), range(10), 1)
        keyed.require(dict.fromkeys(range(10), 1))

    def test_an_attempt_that_failed_is_repeated(self, keyed: KeyedSinkUnderTest) -> None:
        """One attempt died in the middle, one gave up, and one gave up after its flush: the next
        attempt of the task writes all rows."""
        committer(keyed, driver()).close()
        died = keyed.sink.create_writer(attempt(attempt=0))
        died.write(keyed.batch(range(5), 1))
        gave_up = keyed.sink.create_writer(attempt(attempt=1))
        gave_up.write(keyed.batch(range(7), 2))
        gave_up.abort()
        keyed.write(attempt(attempt=2), range(10), 3).abort()
        keyed.write(attempt(attempt=3), range(10), 4)
        keyed.require(dict.fromkeys(range(10), 4))

    def test_an_old_drivers_writer_that_wakes_up_changes_nothing(
        self, keyed: KeyedSinkUnderTest
    ) -> None:
        """Its successor has started, and then gone on; the old writer writes on, and begins
        anew."""
        committer(keyed, driver(1)).close()
        asleep = keyed.sink.create_writer(attempt(1, 7))
        asleep.write(keyed.batch(range(5), 1))
        committer(keyed, driver(2)).close()
        with contextlib.suppress(Exception):
            asleep.write(keyed.batch(range(5, 10), 1))
            asleep.prepare_commit()
        assert set(keyed.shown()) <= set(range(5))

        keyed.write(attempt(2, 7), range(10), 2)
        keyed.write(attempt(2, 8), range(5), 3)
        expected = {**dict.fromkeys(range(10), 2), **dict.fromkeys(range(5), 3)}
        for late in (attempt(1, 7, attempt=9), attempt(1, 9)):
            with contextlib.suppress(Exception):
                keyed.write(late, range(20), 1)
            keyed.require(expected)

    def test_a_task_that_is_late_by_an_epoch_changes_nothing(
        self, keyed: KeyedSinkUnderTest
    ) -> None:
        """Its executor was taken for dead, its retry has won, and the next epoch is written."""
        committer(keyed, driver()).close()
        late = keyed.sink.create_writer(attempt(epoch=4, partition=3, attempt=0))
        late.write(keyed.batch(range(5), 1))
        keyed.write(attempt(epoch=4, partition=3, attempt=1), range(10), 1)
        keyed.write(attempt(epoch=5, partition=0, attempt=2), range(10), 2)
        with contextlib.suppress(Exception):
            late.write(keyed.batch(range(5), 1))
            late.prepare_commit()
        late.abort()
        keyed.require(dict.fromkeys(range(10), 2))

    def test_of_two_attempts_of_a_task_one_counts(self, keyed: KeyedSinkUnderTest) -> None:
        """They run side by side, like speculative attempts, and only one ends: every key has its
        last row."""
        committer(keyed, driver()).close()
        first = keyed.sink.create_writer(attempt(attempt=0))
        second = keyed.sink.create_writer(attempt(attempt=1))
        for value in (1, 2):
            ended = []
            for writer in (first, second):
                with contextlib.suppress(Exception):
                    writer.write(keyed.batch(range(10), value))
                    ended.append(writer)
        for writer in ended[-1:]:
            writer.prepare_commit()
        first.abort()
        third = keyed.sink.create_writer(attempt(attempt=2))  # begun late, and killed half way
        with contextlib.suppress(Exception):
            third.write(keyed.batch(range(10), 1))
        keyed.require(dict.fromkeys(range(10), 2))

    def test_partitions_of_an_epoch_are_written_side_by_side(
        self, keyed: KeyedSinkUnderTest
    ) -> None:
        """The sink must not confuse writers of different partitions."""
        committer(keyed, driver()).close()
        writers = [keyed.sink.create_writer(attempt(partition=p, attempt=9 - p)) for p in range(4)]
        for part in range(3):
            for p, writer in enumerate(writers):
                numbers = range(30 * p + 10 * part, 30 * p + 10 * part + 10)
                writer.write(keyed.batch(numbers, 1))
        for writer in writers:
            assert list(writer.prepare_commit()) == []
        keyed.require(dict.fromkeys(range(120), 1))

    def test_an_epoch_without_rows_writes_nothing(self, keyed: KeyedSinkUnderTest) -> None:
        """No row, or empty batches only."""
        committer(keyed, driver()).close()
        assert list(keyed.sink.create_writer(attempt()).prepare_commit()) == []
        empty = keyed.sink.create_writer(attempt(partition=1))
        empty.write(keyed.batch([], 1))
        assert list(empty.prepare_commit()) == []
        keyed.require({})

    def test_sink_is_picklable_and_says_what_it_is(self, keyed: KeyedSinkUnderTest) -> None:
        """It travels to the executors, and `explain` calls it idempotent."""
        assert pickle.loads(pickle.dumps(keyed.sink)) == keyed.sink
        assert keyed.sink.describe()
        assert "\n" not in keyed.sink.describe()
        assert keyed.sink.way is SinkWay.IDEMPOTENT


class KeyedServerConformance:
    """For a sink with a server of its own in each test. Needs `server`."""

    def test_written_rows_survive_kill_9_of_the_server(self, keyed: KeyedSinkUnderTest) -> None:
        """And so does the fence against late writers."""
        assert keyed.server is not None, "give KeyedSinkUnderTest.server"
        committer(keyed, driver(2)).close()
        keyed.write(attempt(2, 5), range(10), 2)
        keyed.server.kill()
        keyed.server.restart()
        keyed.require(dict.fromkeys(range(10), 2))
        for late in (attempt(1, 6), attempt(2, 4)):
            with contextlib.suppress(Exception):
                keyed.write(late, range(10), 1)
        keyed.require(dict.fromkeys(range(10), 2))

    def test_a_server_that_is_away_fails_the_attempt(self, keyed: KeyedSinkUnderTest) -> None:
        """An exception comes within the sink's deadline; the next attempt writes the rows."""
        assert keyed.server is not None, "give KeyedSinkUnderTest.server"
        committer(keyed, driver()).close()
        writer = keyed.sink.create_writer(attempt())
        writer.write(keyed.batch(range(5), 1))
        keyed.server.kill()
        with soon(), pytest.raises(Exception):  # noqa: B017 - each sink has its own type
            writer.write(keyed.batch(range(5, 10), 1))
            writer.prepare_commit()
        writer.abort()
        keyed.server.restart()
        keyed.write(attempt(attempt=1), range(10), 1)
        keyed.require(dict.fromkeys(range(10), 1))
