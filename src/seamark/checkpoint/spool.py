"""Spools a sink's rows beside the sink's own writer, so that the rows of a lost decided transaction
can be written again. For a sink with ``spool = True``.

The tasks use `keeping` and `dump` (`run/pre_commit.py`). The driver uses `load` and
`LostTransaction` (`sink_commits.py`), and runs `protocol/write_again.py` over it.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamark.checkpoint.envelope import create_record, read_record, storage_faults
from seamark.contracts import spool
from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.dead_letters import RefusedRow, without
from seamark.contracts.record_batches import in_parts
from seamark.contracts.sink import CommittingWriter, SinkContext, TwoPhaseCommitSink, WriterContext
from seamark.contracts.spool import SpoolFile, SpoolWriter
from seamark.files import Directory, HadoopSettings, open_directory
from seamark.files.location import decoded
from seamark.model import failpoints
from seamark.model.errors import CorruptRecordError, LostTransactionError, PreCommitError
from seamark.model.ignored import ignored

REWRITTEN = "rewritten"
REWRITE_ATTEMPT = 10**11
"""Takes the place of a task's attempt: no task of Spark's ever reaches so many."""
_MAGIC = b"seamark-spool "


@dataclass(frozen=True)
class Spooled:
    """A committable of the sink's own, with its rows beside it."""

    committable: Any
    spool: SpoolFile

    @property
    def handle(self) -> str:
        """The committable's."""
        return str(self.committable.handle)


@dataclass(frozen=True)
class _Stored(SpoolFile):
    """The stored form of the two, with the sink's own bytes in base64."""

    committable: str


def dump(sink: TwoPhaseCommitSink[Any], committable: Any) -> bytes:
    """Serialise a committable, with its spool if it has one."""
    if not isinstance(committable, Spooled):
        return sink.dump(committable)
    own = base64.b64encode(sink.dump(committable.committable)).decode()
    return _MAGIC + dump_committable(_Stored(**vars(committable.spool), committable=own))


def load(sink: TwoPhaseCommitSink[Any], data: bytes) -> tuple[Any, SpoolFile | None]:
    """Read the bytes of `dump`, even if the sink has no spool now; raises CorruptRecordError."""
    if not data.startswith(_MAGIC):
        return sink.load(data), None
    stored = load_committable(_Stored, data[len(_MAGIC) :])
    fields = dict(vars(stored))
    own = base64.b64decode(fields.pop("committable"))
    if spool.parse_path(stored.path) is None:
        raise CorruptRecordError(f"{stored.path!r} is not the path of a spool file")
    return sink.load(own), SpoolFile(**fields)


def keeping(
    sink: TwoPhaseCommitSink[Any], writer: CommittingWriter[Any], context: WriterContext
) -> CommittingWriter[Any]:
    """Return the sink's writer; for a sink with a spool, a writer that spools its rows too."""
    return SpoolingWriter(writer, context) if sink.spool else writer


class SpoolingWriter:
    """Hands every batch to the sink's writer and to a spool file. Failpoint: `spool-written`."""

    def __init__(self, writer: CommittingWriter[Any], context: WriterContext) -> None:
        self._writer = writer
        self._context = context
        self._spool = SpoolWriter(context)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CommittingWriter`."""
        self._writer.write(batch)
        self._spool.write(batch)

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`. Refused rows are not spooled either."""
        writer: Any = self._writer
        refused: Sequence[RefusedRow] = writer.write_accepted(batch)
        self._spool.write(without(batch, refused))
        return refused

    def prepare_commit(self) -> Sequence[Any]:
        """See `CommittingWriter`. Makes the spool file durable first: it must exist whenever the
        transaction does."""
        file = self._spool.finish()
        failpoints.reached("spool-written")
        committables = self._writer.prepare_commit()
        if not committables:  # an at-least-once mode: nothing can be lost
            self._spool.discard()
            return []
        if len(committables) > 1 or file is None:
            raise PreCommitError(
                f"a writer of sink {self._context.sink_uid!r} made {len(committables)} "
                "transactions: of one of them alone the spool could not tell the rows. Declare "
                "the sink without a spool"
            )
        return [Spooled(committables[0], file)]

    def abort(self) -> None:
        """See `CommittingWriter`."""
        self._writer.abort()
        self._spool.discard()


@dataclass(eq=False)
class LostTransaction:
    """One lost transaction's chain of rewrites: `protocol.write_again.Rewrites` on real files.

    `open_files` gives the records of the job that wrote the spool; it may be another job.
    `commit_now` commits a committable to the end and returns False if it is proved lost;
    `within_deadline` makes a call that may hang. Raises RecordNotStoredError where a record is
    refused.
    """

    sink: TwoPhaseCommitSink[Any]
    lost: Spooled
    context: SinkContext
    open_files: Callable[[str], Directory]
    commit_now: Callable[[Any], bool]
    abort_now: Callable[[Any], None]
    within_deadline: Callable[[Callable[[], Any]], Any]

    def __post_init__(self) -> None:
        lost, context = self.lost, self.context
        self._own: Any = None
        place = self.within_deadline(lambda: _place(lost.spool, context.spool_uri, context.hadoop))
        self._directory = open_directory(place, context.hadoop)
        job, _, sink_name = decoded(place).rpartition(f"/{spool.SPOOLS}/")
        self._files = self.open_files(job)
        name = spool.parse_path(lost.spool.path)
        assert name is not None
        self._name, self._epoch = name, name.epoch
        digest = hashlib.sha256(lost.handle.encode()).hexdigest()[:32]
        self._records = f"{REWRITTEN}/{sink_name}/{self._epoch}/{digest}"

    def is_recorded(self, number: int) -> bool:
        """See `Rewrites`."""
        path = self._path(number)
        with storage_faults(self._files.uri, path, "looked for"):
            return self._files.exists(path)

    def prepare(self) -> None:
        """See `Rewrites`. Raises LostTransactionError if the spool is missing or damaged."""
        self.within_deadline(self._write)

    def _write(self) -> None:
        file, at = self.lost.spool, self.context
        if problem := spool.problem(self._directory, file):
            raise LostTransactionError(
                f"sink {at.sink_uid!r}: epoch {self._epoch} is decided, its transaction "
                f"{self.lost.handle} is lost, and so is its spool {self._directory}/"
                f"{file.path}: {problem}. Put the file back, or see "
                "docs/operations/lost-transactions.md",
                [self.lost.handle],
            )
        writer = self.sink.create_writer(
            WriterContext(
                job_id=at.job_id,
                sink_uid=at.sink_uid,
                generation=at.generation,
                epoch=self._epoch,
                partition_id=self._name.partition,
                attempt=REWRITE_ATTEMPT,
                settled_epoch=self._epoch - 1,
                hadoop=at.hadoop,
                spool_uri=at.spool_uri,
            )
        )
        try:
            for batch in spool.read(self._directory, file.path):
                for part in in_parts(batch):
                    writer.write(part)
            (self._own,) = writer.prepare_commit()
        except BaseException:
            with ignored("the abort of a writer"):
                writer.abort()
            raise

    def record(self, number: int) -> bool:
        """See `Rewrites`."""
        if self._create(number, base64.b64encode(self.sink.dump(self._own)).decode()):
            return True
        self.abort_now(self._own)
        return False

    def commit(self, number: int) -> bool:
        """See `Rewrites`."""
        committable = self._read(number)
        if not committable:
            raise LostTransactionError(
                f"sink {self.context.sink_uid!r}: epoch {self._epoch} is decided, its transaction "
                f"{self.lost.handle} is lost, and an operator has accepted this loss: its rows "
                "are not written again",
                [self.lost.handle],
            )
        return self.commit_now(self.sink.load(base64.b64decode(committable)))

    def close(self, number: int) -> bool:
        """See `Rewrites`."""
        return self._create(number, "")

    def is_closed(self, number: int) -> bool:
        """See `Rewrites`."""
        return not self._read(number)

    def _create(self, number: int, committable: str) -> bool:
        body = {
            "handle": self.lost.handle,
            "number": number,
            "generation": self.context.generation,
            "committable": committable,
            "written_at": time.time(),
        }
        path = self._path(number)
        with storage_faults(self._files.uri, path, "written"):
            return create_record(self._files, REWRITTEN, path, body)

    def _read(self, number: int) -> str:
        path = self._path(number)
        with storage_faults(self._files.uri, path, "read"):
            body = read_record(self._files, REWRITTEN, path)
        if body.get("handle") != self.lost.handle or body.get("number") != number:
            raise CorruptRecordError(f"{self._files.uri}/{path}: it is another transaction's")
        return str(body["committable"])

    def _path(self, number: int) -> str:
        return f"{self._records}.{number}.json"


def read_rewrites(
    files: Directory, uid: str, sink: TwoPhaseCommitSink[Any]
) -> dict[int, list[tuple[str, Any]]]:
    """Return the rewrites recorded for a sink, by epoch: the lost transaction's handle and the
    committable of the one that took its place."""
    at = f"{REWRITTEN}/{spool.spool_directory(uid).rpartition('/')[2]}"
    rewrites: dict[int, list[tuple[str, Any]]] = {}
    for epoch in files.list(at):
        for name in files.list(f"{at}/{epoch}"):
            body = read_record(files, REWRITTEN, f"{at}/{epoch}/{name}")
            if body["committable"]:  # "" closes a chain
                own = sink.load(base64.b64decode(body["committable"]))
                rewrites.setdefault(int(epoch), []).append((body["handle"], own))
    return rewrites


def _place(file: SpoolFile, own_uri: str, hadoop: HadoopSettings) -> str:
    """Return the directory of the spool with the file: the place of its writing, unless the whole
    checkpoint has been moved since."""
    if own_uri and file.directory != own_uri:
        written, own = open_directory(file.directory, hadoop), open_directory(own_uri, hadoop)
        if written.size(file.path) is None and own.size(file.path) is not None:
            return own_uri
    return file.directory
