"""Driver side: one SQLite transaction per call moves staged rows and writes the ledger.

Invariants:
- A transaction's rows are in the table if and only if its ledger row says ``committed``.
- A staged file is deleted only after its ledger row is durable.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, OpenFacts, SinkContext
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError
from seamark.model.schema import Column
from seamark.sinks.internal.committers import StagingCommitter, not_committed
from seamark.sinks.internal.outcomes import Fate, may_have_forgotten
from seamark.sinks.internal.staged_files import StagedFile, list_staged
from seamark.sinks.sqlite import database, merging

if TYPE_CHECKING:
    from seamark.sinks.sqlite.sink import SQLiteSink

log = logging.getLogger(__name__)


class SQLiteCommitter(StagingCommitter["SQLiteSink"]):
    """Holds no connection between calls, so any thread may call. A thread of its own deletes the
    files of committed rows during the next epoch: the kernel takes 1 ms for each MB."""

    def __init__(self, sink: "SQLiteSink", context: SinkContext) -> None:
        super().__init__(sink, context, log, f"SQLite database {sink.path}")
        self._path = sink.path
        self._table = sink.table
        self._root = sink.staging_root
        self._deleting: threading.Thread | None = None
        self._facts: database.TableFacts | None = None

    def preflight(self) -> None:
        """See `Committer`."""
        super().preflight()
        self._facts = database.ask_table(self._sink.target)

    def commit(self, committables: Sequence[StagedFile]) -> Sequence[CommitOutcome]:
        """Insert this call's staged rows, all or none.

        LOST: the transaction was aborted, or its staged file is gone or torn. UNKNOWN: the ledger
        no longer keeps its epoch. Raises CommitFailedError when the table refuses the rows;
        SQLite's error or OSError while the database is locked, or its disk away or full.
        """
        if not committables:
            return []
        try:
            with database.transaction(self._path) as cursor:
                outcomes = [self._commit_one(cursor, one).of_commit for one in committables]
                database.prune(cursor, committables)
        except sqlite3.Error as error:
            if database.may_pass(error):
                raise
            raise self._refused(committables[0].epoch, str(error)) from error
        failpoints.reached("ledger-committed")
        done = (CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED)
        pairs = zip(committables, outcomes, strict=True)
        self._delete_soon([committable for committable, how in pairs if how in done])
        return outcomes

    def abort(self, committables: Sequence[StagedFile]) -> Sequence[AbortOutcome]:
        """Write a tombstone for each transaction, then delete its file."""
        if not committables:
            return []
        outcomes = []
        with database.transaction(self._path) as cursor:
            for committable in committables:
                fate = database.fate(cursor, committable.handle)
                if fate is None:
                    fate = Fate.ABORTED
                    database.record(cursor, committable, fate)
                outcomes.append(fate.of_abort)
        self._delete(committables)
        return outcomes

    def list_lingering(self) -> Iterator[Lingering[StagedFile]]:
        """Yield staged files without a ledger row; delete those with one."""
        self._end_deletion()
        staged = list(list_staged(self._root, self._context))
        if not staged:
            return
        ended = database.ended(self._path, self._context.job_id, self._context.sink_uid)
        self._delete([file for file in staged if file.handle in ended])
        for file in staged:
            if file.handle not in ended:
                yield Lingering(file, file.generation)

    def describe_open(self, committables: Sequence[StagedFile]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`: when each file was written. None times out."""
        root = LocalDirectory(str(self._root))
        return [OpenFacts(root.modified(one.handle)) for one in committables]

    def close(self) -> None:
        """Wait for the deletion of committed files. Nothing is open between calls."""
        self._end_deletion()

    def _commit_one(self, cursor: sqlite3.Cursor, committable: StagedFile) -> Fate:
        if (fate := database.fate(cursor, committable.handle)) is not None:
            return fate
        newest = database.newest_epoch(cursor, committable.job_id, committable.sink_uid)
        if may_have_forgotten(committable.epoch, newest):
            log.error("%s: the ledger has forgotten %s", self._name, committable.handle)
            return Fate.FORGOTTEN
        staged = self._root / committable.handle
        try:
            with pa.memory_map(str(staged)) as file:
                rows = pa.ipc.open_file(file).read_all()
                if rows.num_rows != committable.rows:
                    raise pa.ArrowInvalid(f"{rows.num_rows} rows, {committable.rows} were staged")
                target = merging.target_of(rows, self._sink.target)
                self._require_fit(cursor, target, rows.schema.names, committable.epoch)
                merging.move(cursor, target, rows)
                del rows
        except FileNotFoundError:
            if not self._root.is_dir():  # not mounted now
                raise
            log.error("%s: staged file %s is gone", self._name, staged)
            return Fate.ABORTED
        except pa.ArrowInvalid as error:
            log.error("%s: staged file %s is damaged: %s", self._name, staged, error)
            return Fate.ABORTED
        database.record(cursor, committable, Fate.COMMITTED)
        return Fate.ENDED_NOW

    def _require_fit(
        self, cursor: sqlite3.Cursor, target: database.Target, names: Sequence[str], epoch: int
    ) -> None:
        """Raise CommitFailedError if the table is gone, or may alter the rows: it was altered since
        the start. Without a preflight, as in a worker of ``format("seamark")``, the table is judged
        each time."""
        facts = database.describe(cursor, target)
        if facts == self._facts:
            return
        # Rows staged before the sink got another table had other types, perhaps.
        schema = self._context.schema if target == self._sink.target else ()
        if schema and all(column.type for column in schema) and not facts.columns:
            # The start has made it.
            raise self._refused(epoch, "the table does not exist any more; make it again")
        types = {column.name: column.type for column in schema}
        columns = tuple(Column(name, types.get(name, "")) for name in names)
        for why, remedy in database.misfits(target, columns, facts):
            raise self._refused(epoch, f"{why}; {remedy}. It was altered while the job ran")

    def _refused(self, epoch: int, why: str) -> CommitFailedError:
        return not_committed(f"{self._name}, table {self._table}", epoch, why)

    def _delete_soon(self, committables: Sequence[StagedFile]) -> None:
        self._end_deletion()
        self._deleting = threading.Thread(
            target=self._delete, args=(committables,), name="seamark-sqlite", daemon=True
        )
        self._deleting.start()

    def _end_deletion(self) -> None:
        if self._deleting is not None:
            self._deleting.join()

    def _delete(self, committables: Sequence[StagedFile]) -> None:
        """Delete the files, best effort: `list_lingering` deletes leftovers with a ledger row."""
        for committable in committables:
            with contextlib.suppress(OSError):
                (self._root / committable.handle).unlink()
