"""How: the stored form of a committable with its spool, altered; its writer; and the end of a chain
of rewrites, on real files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.checkpoint import spool
from seamark.contracts import spool as contract
from seamark.contracts.dead_letters import RefusedRow
from seamark.contracts.record_batches import PART_BYTES
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.files import open_directory
from seamark.files.local import LocalDirectory
from seamark.model.errors import (
    CorruptRecordError,
    LossRefusedError,
    LostTransactionError,
    PreCommitError,
    RecordNotStoredError,
)
from seamark.protocol.write_again import close_chain, write_again
from tests.unit.checkpoint.memory_sink import MemorySink, Transaction


class Writing(MemorySink):
    """Its writers make as many transactions as they are told."""

    spool = True
    transactions = 1

    def create_writer(self, context: WriterContext) -> Any:
        return self

    most_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.most_bytes = max(self.most_bytes, batch.nbytes)

    def prepare_commit(self) -> Sequence[Transaction]:
        return [Transaction(f"t{i}", 1) for i in range(self.transactions)]


@pytest.fixture
def at(tmp_path: Path) -> WriterContext:
    (tmp_path / "job").mkdir()
    uri = (tmp_path / "job/wal/out").as_uri()
    return WriterContext("j", "out", 1, 3, 2, 0, 2, spool_uri=uri)


def written(sink: Writing, at: WriterContext) -> Any:
    writer = spool.keeping(sink, sink.create_writer(at), at)
    writer.write(pa.record_batch({"n": [1, 2]}))
    writer.write(pa.record_batch({"n": [3]}))
    (found,) = writer.prepare_commit()
    return found


def test_rows_and_committable_survive_dump_and_load(at: WriterContext) -> None:
    sink = Writing()
    found = written(sink, at)
    assert found.handle == "t0"
    data = spool.dump(sink, found)
    committable, kept = spool.load(sink, data)
    assert (committable, kept) == (found.committable, found.spool)
    assert kept is not None and kept.rows == 3
    batches = contract.read(open_directory(kept.directory), kept.path)
    assert [n for batch in batches for n in batch["n"].to_pylist()] == [1, 2, 3]
    assert getattr(contract.parse_path(kept.path), "partition", None) == 2
    for position in range(len(data) - 1, len(spool._MAGIC), -7):
        flipped = bytearray(data)
        flipped[position] ^= 4
        with pytest.raises(CorruptRecordError):
            spool.load(sink, bytes(flipped))


def test_a_committable_without_a_spool_is_the_sinks_own(at: WriterContext) -> None:
    sink = Writing()
    plain = Transaction("t", 1)
    assert spool.dump(sink, plain) == sink.dump(plain)
    assert spool.load(sink, sink.dump(plain)) == (plain, None)
    sink.spool = False
    assert spool.keeping(sink, sink.create_writer(at), at) is sink


def test_a_spool_is_of_one_transaction(at: WriterContext) -> None:
    sink = Writing()
    sink.transactions = 2
    with pytest.raises(PreCommitError, match="made 2 transactions"):
        written(sink, at)


def test_a_writer_without_transactions_keeps_nothing(at: WriterContext) -> None:
    sink = Writing()
    sink.transactions = 0
    writer = spool.keeping(sink, sink.create_writer(at), at)
    writer.write(pa.record_batch({"n": [1]}))
    assert list(writer.prepare_commit()) == []
    assert list(Path(at.spool_uri.removeprefix("file://"), "3").iterdir()) == []


def test_refused_rows_are_not_kept(at: WriterContext) -> None:
    class Choosy(Writing):
        def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
            return [RefusedRow(1, "odd")]

    sink = Choosy()
    writer: Any = spool.keeping(sink, sink.create_writer(at), at)
    assert writer.write_accepted(pa.record_batch({"n": [1, 2, 3]})) == [RefusedRow(1, "odd")]
    (found,) = writer.prepare_commit()
    batches = contract.read(open_directory(found.spool.directory), found.spool.path)
    assert [n for batch in batches for n in batch["n"].to_pylist()] == [1, 3]


class Chain(spool.LostTransaction):
    """The rewrites of a lost transaction, of whose commits `visible` tells."""

    patient = False
    """Whether a call is being made that may hang."""

    def __init__(self, found: Any, at: WriterContext, directory: Path, *, visible: bool) -> None:
        self.asked: list[Transaction] = []
        self.aborted: list[Transaction] = []

        def commit_now(rewrite: Transaction) -> bool:
            self.asked.append(rewrite)
            return visible

        context = SinkContext("j", "job", "out", 2, 1.0, spool_uri=at.spool_uri)
        super().__init__(
            Writing(),
            found,
            context,
            open_files=lambda job: LocalDirectory(directory),
            commit_now=commit_now,
            abort_now=self.aborted.append,
            within_deadline=self._call,
        )

    def _call(self, call: Any) -> Any:
        Chain.patient = True
        try:
            return call()
        finally:
            Chain.patient = False


def test_a_large_batch_is_written_again_in_parts(at: WriterContext, tmp_path: Path) -> None:
    """An older version spooled Spark's batches as they came."""
    sink = Writing()
    writer = spool.keeping(sink, sink.create_writer(at), at)
    writer.write(pa.record_batch({"text": ["x" * 2**20] * 40}))
    (found,) = writer.prepare_commit()
    chain = Chain(found, at, tmp_path / "job", visible=True)
    chain.prepare()
    assert isinstance(chain.sink, Writing)
    assert 2**23 < chain.sink.most_bytes <= PART_BYTES


def test_a_closed_chain_is_never_written_again(at: WriterContext, tmp_path: Path) -> None:
    found = written(Writing(), at)
    for _ in range(2):  # the second finds the end of the first
        list(close_chain(Chain(found, at, tmp_path / "job", visible=True)))
    late = Chain(found, at, tmp_path / "job", visible=True)
    with pytest.raises(LostTransactionError, match="an operator has accepted") as caught:
        list(write_again(late))
    assert caught.value.transactions == {"t0"}
    assert late.asked == []
    sleeper = Chain(found, at, tmp_path / "job", visible=True)
    sleeper.prepare()
    assert not sleeper.record(1)
    assert [each.handle for each in sleeper.aborted] == ["t0"]


def test_a_chain_is_closed_behind_rewrites_that_are_lost_too(
    at: WriterContext, tmp_path: Path
) -> None:
    found = written(Writing(), at)
    chain = Chain(found, at, tmp_path / "job", visible=False)
    chain.prepare()
    assert chain.record(1)
    list(close_chain(chain))
    assert [chain.is_closed(number) for number in (1, 2)] == [False, True]


def test_a_chain_that_was_written_again_is_not_closed(at: WriterContext, tmp_path: Path) -> None:
    found = written(Writing(), at)
    chain = Chain(found, at, tmp_path / "job", visible=True)
    list(write_again(chain))
    with pytest.raises(LossRefusedError, match="nothing is lost"):
        list(close_chain(chain))
    assert not chain.is_recorded(2)


def test_a_storage_that_refuses_a_record_of_a_rewrite_is_named(
    at: WriterContext, tmp_path: Path
) -> None:
    """A plain OSError would be no failure of the storage, and have no remedy."""
    chain = Chain(written(Writing(), at), at, tmp_path / "job", visible=True)
    (tmp_path / "job/rewritten").touch()
    with pytest.raises(RecordNotStoredError, match=r"rewritten/out/3/.*cannot be written"):
        list(write_again(chain))
    with pytest.raises(RecordNotStoredError, match=r"rewritten/out/3/.*cannot be read"):
        chain.is_closed(1)


def test_a_spool_that_has_been_moved_is_looked_for_within_the_deadline(
    at: WriterContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = written(Writing(), at)
    moved = replace(at, spool_uri=(tmp_path / "moved/wal/out").as_uri())
    (tmp_path / "job").rename(tmp_path / "moved")
    looks: list[bool] = []
    size = LocalDirectory.size

    def look(files: LocalDirectory, path: str) -> int | None:
        looks.append(Chain.patient)
        return size(files, path)

    monkeypatch.setattr(LocalDirectory, "size", look)
    list(write_again(Chain(found, moved, tmp_path / "moved", visible=True)))
    assert looks and all(looks), "a storage that hangs would hold the commit up for ever"
