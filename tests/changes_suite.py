"""Tests for each sink with `op=`: a table changed at random must equal a dict changed likewise.

How: seeded changes of a few keys, many of one key in an epoch. Each key belongs to one of two
tasks, whose rows come in batches; every commit is repeated, every second attempt aborted and
written again.
A column that only others write tells a row made anew from one that was changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome, SinkContext, TwoPhaseCommitSink, WriterContext
from seamark.model.errors import WriteRefusedError
from seamark.model.schema import Column
from seamark.verify.conformance.steps import DONE

JOB, UID = "c0ffee00c0ffee00", "orders-out"
SCHEMA = (Column("id", "bigint"), Column("text", "string"), Column("op", "string"))
Change = tuple[int | None, str | None, str | None]
Table = dict[int, tuple[str, str | None]]


@dataclass(frozen=True)
class ChangesUnderTest:
    """A sink by the key `id` with op `op` on an empty table.

    rows: reads `text` and `note` by id. mark: sets `note` to ``seen`` in every row there is, and
    returns whether rows have notes. fresh: the note of a new row. refuses_null: whether `text` may
    not be null.
    """

    sink: TwoPhaseCommitSink[Any]
    rows: Callable[[], Table]
    mark: Callable[[], bool]
    fresh: str | None = None
    refuses_null: bool = True


def batch(sink: TwoPhaseCommitSink[Any], changes: Sequence[Change]) -> pa.RecordBatch:
    """Return the rows with the columns that Spark would make of them for the sink."""
    ids, texts, ops = (list(column) for column in zip(*changes, strict=True))
    types = (pa.int64(), pa.string(), pa.string())
    columns = [pa.array(v, t) for v, t in zip((ids, texts, ops), types, strict=True)]
    if sink.select_expressions(SCHEMA)[0].startswith("CAST"):
        columns[0] = columns[0].cast(pa.string())
    return pa.record_batch(columns, names=["id", "text", "op"])


def at_random(chance: random.Random, count: int) -> list[Change]:
    """Return changes of eight keys. A row to delete has its key alone."""
    found: list[Change] = []
    for number in range(count):
        op = chance.choice(("insert", "update", "delete"))
        text = None if op == "delete" else f"text {number} {chance.random()} 'quoted' \\"
        found.append((chance.randrange(8), text, op))
    return found


def apply(changes: Sequence[Change], table: Table, fresh: str | None) -> None:
    for key, text, op in changes:
        assert key is not None
        if op == "delete":
            table.pop(key, None)
        else:
            assert text is not None
            table[key] = (text, table[key][1] if key in table else fresh)


def driver(generation: int = 1) -> SinkContext:
    return SinkContext(JOB, "orders", UID, generation, 5.0, SCHEMA)


def write(
    sink: TwoPhaseCommitSink[Any],
    changes: Sequence[Change],
    epoch: int,
    task: int = 0,
    number: int = 0,
) -> list[Any]:
    writer = sink.create_writer(WriterContext(JOB, UID, 1, epoch, task, number, epoch - 1))
    try:
        for start in range(0, len(changes), 7):
            writer.write(batch(sink, changes[start : start + 7]))
        return list(writer.prepare_commit())
    except BaseException:
        writer.abort()
        raise


def commit(sink: TwoPhaseCommitSink[Any], committables: Sequence[Any]) -> None:
    committer = sink.create_committer(driver())
    try:
        assert set(committer.commit(committables)) <= {CommitOutcome.COMMITTED}
        assert set(committer.commit(committables)) <= DONE
    finally:
        committer.close()


class ChangesSuite:
    """`under` is a fixture of the subclass."""

    @pytest.fixture(autouse=True)
    def _preflight(self, under: ChangesUnderTest) -> None:
        committer = under.sink.create_committer(driver())
        committer.preflight()
        committer.close()

    @pytest.mark.parametrize("seed", range(3))
    def test_a_table_changed_at_random(self, under: ChangesUnderTest, seed: int) -> None:
        chance, expected = random.Random(seed), Table()
        for epoch in range(5):
            changes = at_random(chance, 40)
            prepared = []
            for task in (0, 1):
                own = [change for change in changes if (change[0] or 0) % 2 == task]
                committables = write(under.sink, own, epoch, task)
                if task == epoch % 2 and committables:
                    committer = under.sink.create_committer(driver())
                    committer.abort(committables)
                    committer.close()
                    committables = write(under.sink, own, epoch, task, 1)
                prepared += committables
            commit(under.sink, prepared)
            apply(changes, expected, under.fresh)
            assert under.rows() == expected, f"epoch {epoch}"
            if epoch == 2:
                note = "seen" if under.mark() else under.fresh
                expected = {key: (text, note) for key, (text, _) in expected.items()}

    @pytest.mark.parametrize("wrong", ["c", "DELETE", "", None])
    def test_an_unknown_op(self, under: ChangesUnderTest, wrong: str | None) -> None:
        rows: list[Change] = [(1, "one", "insert"), (2, "two", wrong)]
        with pytest.raises(WriteRefusedError, match=rf"'op' is {wrong!r}; allowed are insert, upd"):
            write(under.sink, rows, 0)
        assert 2 not in under.rows()

    def test_dead_letters(self, under: ChangesUnderTest) -> None:
        rows: list[Change] = [
            (1, "one", "insert"), (2, "two", "upsert"), (1, None, "delete"),
            (None, "keyless", "insert"), (3, None, "delete"), (4, "four", "insert"),
        ]  # fmt: skip
        expected = {1: "'op' is 'upsert'", 3: "null"}
        if under.refuses_null:
            rows.append((5, None, "update"))
            expected[6] = "text"
        writer = under.sink.create_selective_writer(WriterContext(JOB, UID, 1, 0, 0, 0, -1))  # type: ignore[attr-defined]
        refused = writer.write_accepted(batch(under.sink, rows))
        assert [row.index for row in refused] == list(expected), refused
        for row in refused:
            assert expected[row.index] in row.reason
        commit(under.sink, list(writer.prepare_commit()))
        assert under.rows() == {4: ("four", under.fresh)}

    def test_a_null_that_the_table_refuses(self, under: ChangesUnderTest) -> None:
        if not under.refuses_null:
            pytest.skip("null deletes")
        with pytest.raises(WriteRefusedError, match="text"):
            write(under.sink, [(1, None, "delete"), (1, None, "insert")], 0)
