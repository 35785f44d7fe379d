"""Driver side: one log entry commits, or aborts, all of an epoch's data files.

The table's log is the ledger. Every entry that commits or aborts transactions of this sink has two
marks: an application transaction (``txn``) with the id `app_id`, and the handles with their outcome
in its ``commitInfo``. The second mark is the proof, tied to the handle. The first makes these
entries exclude each other. Commit and abort load the table and read the ledger up to that version;
delta-rs then writes the entry only if no other one with this id has come since. So exactly one of a
commit and an abort of the same files succeeds, whoever calls them and whenever.

Invariants:
- At most one entry has a handle's outcome.
- An entry names a file only if the file is there, whole, and the ledger is silent about it. A file
  is deleted only after the ledger says "aborted".
- An outcome is returned only once its entry is durable.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, OpenFacts, SinkContext
from seamark.file_systems import Directory, open_directory
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError, PreflightError
from seamark.sinks.delta import pending_files, preflight, store
from seamark.sinks.delta.committable import STAGED, DeltaCommittable, parse

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

KEY = "seamark"
COMMITTED, ABORTED = "committed", "aborted"


@dataclass(frozen=True)
class Entry:
    """A handle's outcome, and the version of its log entry."""

    outcome: str
    version: int


class Ledger:
    """The log's entries read so far; each is read once."""

    def __init__(self, files: Directory, job_id: str, sink_uid: str) -> None:
        self.app_id = f"seamark:{job_id}:{sink_uid}"
        self._files = files
        self._first = self._next = 0
        self._entries: dict[str, Entry] = {}

    def mark(self, outcome: str, handles: Sequence[str]) -> dict[str, Any]:
        """Return a commit's metadata for this outcome."""
        return {KEY: {"appId": self.app_id, "outcome": outcome, "handles": list(handles)}}

    def read(self, since: int, version: int) -> None:
        """Read every entry from `since` to `version`, both included."""
        is_apart = since < self._first or since > self._next
        if is_apart or version + 1 < self._next:  # the second: the table was created anew
            self._entries, self._first, self._next = {}, since, since
        numbers = range(self._next, version + 1)
        entries = store.reads(self._files, list(map(entry_path, numbers)))
        for number, data in zip(numbers, entries, strict=True):
            if data is None:
                store.require_mounted(self._files)
                self._first = number + 1  # cleaned up
            elif b'"seamark"' in data:
                self._entries.update(self._told(number, data))
        self._next = version + 1

    def forget(self, before: int) -> None:
        """Drop entries before this version: nobody asks for older ones any more."""
        self._first = max(self._first, min(before, self._next))
        self._entries = {h: e for h, e in self._entries.items() if e.version >= before}

    def knows(self, since: int) -> bool:
        """Whether every entry from `since` on could still be read."""
        return since >= self._first

    def entry(self, handle: str) -> Entry | None:
        """Return the handle's entry, None if there is none."""
        return self._entries.get(handle)

    def _told(self, number: int, data: bytes) -> Iterable[tuple[str, Entry]]:
        for line in data.splitlines():
            info = json.loads(line).get("commitInfo") if b'"commitInfo"' in line else None
            mark = info.get(KEY) if isinstance(info, dict) else None
            # Other jobs' entries too: a restored job asks for the attempts of the first job.
            if isinstance(mark, dict):
                for handle in mark["handles"]:
                    yield handle, Entry(mark["outcome"], number)


def entry_path(version: int) -> str:
    """Return a log entry's path below the table's directory."""
    return f"_delta_log/{version:020d}.json"


def _added(entry: bytes | None) -> list[str]:
    """Return the files that a log entry adds, in the table or as change data."""
    lines = [json.loads(line) for line in (entry or b"").splitlines()]
    found = [line.get("add") or line.get("cdc") for line in lines]
    return [unquote(action["path"]) for action in found if action]


_log = logging.getLogger(__name__)
_GONE = (CommitOutcome.LOST, CommitOutcome.UNKNOWN)
_TRIES = 5
"""Tries of a commit or abort that meets other entries of this sink; then the answer is RETRY."""


class DeltaCommitter:
    """Keeps the table's state between calls. Any thread may call, one at a time."""

    def __init__(self, sink: "DeltaSink", context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._name = f"sink {context.sink_uid!r}: {sink.describe()}"
        self._hadoop = context.hadoop.under(sink.storage_options)
        self._files = open_directory(sink.path, self._hadoop)
        self._ledger = Ledger(self._files, context.job_id, context.sink_uid)
        self._table: Any = None
        self._checked: object = None

    def preflight(self) -> None:
        """Check the table; create it if it is missing and the sink may. Raises PreflightError."""
        self._table = preflight.check(self._sink, self._context, self._name)
        self._checked = preflight.shape(self._table)

    def commit(self, committables: Sequence[DeltaCommittable]) -> Sequence[CommitOutcome]:
        """Add every file to the table in one log entry.

        LOST: aborted, or a file is gone or torn. UNKNOWN: the log entries that could hold the
        outcome have been cleaned up. Raises CommitFailedError when the table has changed.
        """
        outcomes = [CommitOutcome.RETRY] * len(committables)
        for _ in range(_TRIES if committables else 0):
            try:
                self._refresh(committables)
                self._check_shape()
                open_ = self._judge(committables, outcomes)
                if not open_ or self._add(open_):
                    break
            except preflight.errors():
                self._table = None
                raise
        else:
            return outcomes
        for position, committable in enumerate(committables):
            if committable in open_:
                outcomes[position] = CommitOutcome.COMMITTED
        self._tidy([c for c, o in zip(committables, outcomes, strict=True) if o not in _GONE])
        return outcomes

    def abort(self, committables: Sequence[DeltaCommittable]) -> Sequence[AbortOutcome]:
        """Record the abort in the log, so that a late commit is refused. Then delete the files."""
        outcomes = [AbortOutcome.RETRY] * len(committables)
        for _ in range(_TRIES if committables else 0):
            try:
                self._refresh(committables)
                told = [self._told(c) for c in committables]
                open_ = [c.handle for c, e in zip(committables, told, strict=True) if e is None]
                if open_:
                    failpoints.reached("delta-abort-checked")
                    if not self._append(ABORTED, open_, [], self._newest_epoch()):
                        continue
                    failpoints.reached("delta-aborted")
                self._sync_entries([e.version for e in told if e is not None])
            except preflight.errors():
                self._table = None
                raise
            outcomes = [
                AbortOutcome.COMMITTED if e and e.outcome == COMMITTED else AbortOutcome.ABORTED
                for e in told
            ]
            self._delete(
                [c for c, o in zip(committables, outcomes, strict=True)
                 if o is AbortOutcome.ABORTED]
            )  # fmt: skip
            break
        return outcomes

    def list_lingering(self) -> Iterator[Lingering[DeltaCommittable]]:
        """Yield every attempt with a record and without a ledger entry; clean up the others."""
        pending = list(pending_files.find(self._files, self._context))
        store.require_mounted(self._files)
        if pending:
            self._refresh(pending)
        told = [(found, self._told(found)) for found in pending]
        self._tidy([c for c, entry in told if entry and entry.outcome == COMMITTED])
        self._delete([c for c, entry in told if entry and entry.outcome == ABORTED])
        for found, entry in told:
            if entry is None:
                yield Lingering(found, found.generation)

    def describe_open(self, committables: Sequence[DeltaCommittable]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`: when each attempt has begun its first file. None times
        out."""
        records = [pending_files.records(one) for one in committables]
        return [OpenFacts(self._files.modified(r[0]) if r else None) for r in records]

    def close(self) -> None:
        """Forget the table; nothing is open between calls."""
        self._table = None

    # --- the table as it is now

    def _refresh(self, committables: Sequence[DeltaCommittable]) -> None:
        """Load the table's newest version, and read the ledger up to it."""
        if self._table is None:
            self._table = preflight.load(self._sink, self._hadoop)
        else:
            self._table.update_incremental()
        since = min(c.log_version for c in committables)
        self._ledger.forget(since)
        self._ledger.read(since, self._table.version())

    def _told(self, committable: DeltaCommittable) -> Entry | None:
        """Return the log's entry for a transaction, None if there is none. Once its log entries
        have been cleaned up, files named by the table count as committed, and must stay."""
        entry = self._ledger.entry(committable.handle)
        if entry is None and not self._ledger.knows(committable.log_version):
            paths = pending_files.data_paths(self._files, committable)
            named = {uri.rpartition("/")[2] for uri in self._table.file_uris()}
            if named.intersection(path.rpartition("/")[2] for path in paths):
                return Entry(COMMITTED, self._table.version())
        return entry

    def _check_shape(self) -> None:
        """Raise CommitFailedError if the table has been altered and the files no longer fit."""
        if (shape := preflight.shape(self._table)) == self._checked:
            return
        try:
            preflight.check_table(self._table, self._sink, self._context, self._name)
        except PreflightError as error:
            raise CommitFailedError(
                f"{error}. The table was altered while the job ran: its decided rows are kept and "
                "not visible; alter it back and start the job again, and they are committed"
            ) from error
        self._checked = shape

    def _judge(
        self, committables: Sequence[DeltaCommittable], outcomes: list[CommitOutcome]
    ) -> list[DeltaCommittable]:
        """Set every known outcome; return the committables still to be committed."""
        silent: dict[int, DeltaCommittable] = {}
        versions = []
        for position, committable in enumerate(committables):
            entry = self._told(committable)
            if entry is not None and entry.outcome == COMMITTED:
                versions.append(entry.version)
                outcomes[position] = CommitOutcome.ALREADY_COMMITTED
            elif entry is not None:
                outcomes[position] = CommitOutcome.LOST
            elif self._ledger.knows(committable.log_version):
                silent[position] = committable
            else:
                outcomes[position] = CommitOutcome.UNKNOWN
                _log.error(
                    "%s: log entries since version %d have been cleaned up "
                    "(delta.logRetentionDuration), so it cannot be told whether epoch %d was "
                    "committed and its files removed since",
                    self._name, committable.log_version, committable.epoch,
                )  # fmt: skip
        self._sync_entries(versions)
        torn = self._torn(list(silent.values()))
        store.require_mounted(self._files)
        for position, committable in silent.items():
            if committable.handle in torn:
                outcomes[position] = CommitOutcome.LOST
        return [c for c in silent.values() if c.handle not in torn]

    def _torn(self, committables: Sequence[DeltaCommittable]) -> set[str]:
        """Return the handles with a missing or damaged file."""
        files = [(c.handle, file) for c in committables for file in c.data_files]
        torn = set()
        sizes = store.sizes(self._files, [file.path for _, file in files])
        for (handle, file), size in zip(files, sizes, strict=True):
            if size != file.size_bytes:
                torn.add(handle)
                found = "gone" if size is None else f"damaged: it has {size} bytes"
                _log.error("%s: data file %s is %s, of %d that were written",
                           self._name, file.path, found, file.size_bytes)  # fmt: skip
        return torn

    def _newest_epoch(self) -> int:
        version = self._table.transaction_version(self._ledger.app_id)
        return -1 if version is None else int(version)

    # --- writing

    def _add(self, committables: Sequence[DeltaCommittable]) -> bool:
        """Commit the files to be appended, then those to be merged. Return False if perhaps
        refused."""
        kinds = sorted({c.merged_by for c in committables})  # without keys first
        return all(
            (self._merge if keys else self._add_files)(
                [c for c in committables if c.merged_by == (keys, op)]
            )
            for keys, op in kinds
        )

    def _merge(self, committables: Sequence[DeltaCommittable]) -> bool:
        """Merge rows staged with the same keys and op."""
        from deltalake.exceptions import CommitFailedError as RefusedError

        from seamark.sinks.delta import merging

        found = sorted(committables, key=lambda c: (c.epoch, parse(c.handle).partition))
        staged = [file for c in found for file in c.data_files]
        handles = [c.handle for c in found]
        epoch = found[-1].epoch
        failpoints.reached("delta-commit-checked")
        before = self._table.version()
        try:
            properties = self._properties(COMMITTED, handles, epoch)
            merging.merge(self._table, self._files, staged, properties)
        except RefusedError as error:
            _log.info("%s: %s; reading the log again", self._name, error)
            return False
        if self._table.version() == before:  # nothing has changed, and nothing tells of it
            return self._append(COMMITTED, handles, [], epoch)
        failpoints.reached("delta-committed")
        self._table.update_incremental()
        self._sync_entries(range(before + 1, self._table.version() + 1))
        return True

    def _add_files(self, committables: Sequence[DeltaCommittable]) -> bool:
        from deltalake.transaction import AddAction

        actions = [
            AddAction(
                path=file.path,  # delta-rs encodes it
                size=file.size_bytes,
                partition_values=dict(file.partition_values),
                modification_time=file.modified_ms,
                data_change=True,
                stats=file.statistics,
            )
            for committable in committables
            for file in committable.data_files
        ]
        failpoints.reached("delta-commit-checked")
        epoch = max(committable.epoch for committable in committables)
        added = self._append(COMMITTED, [c.handle for c in committables], actions, epoch)
        if added:
            failpoints.reached("delta-committed")
        return added

    def _append(
        self, outcome: str, handles: Sequence[str], actions: Sequence[Any], txn_version: int
    ) -> bool:
        """Write one log entry and make it durable. Return False if perhaps refused."""
        from deltalake.exceptions import CommitFailedError as RefusedError

        properties = self._properties(outcome, handles, txn_version)
        table = self._table
        before = table.version()
        try:
            table.create_write_transaction(
                list(actions), "append", table.schema(), table.metadata().partition_columns,
                commit_properties=properties,
            )  # fmt: skip
        except RefusedError as error:
            _log.info("%s: %s; reading the log again", self._name, error)
            return False
        table.update_incremental()
        self._sync_entries(range(before + 1, table.version() + 1))
        return True

    def _properties(self, outcome: str, handles: Sequence[str], txn_version: int) -> Any:
        from deltalake.transaction import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata=self._ledger.mark(outcome, handles),
            app_transactions=[Transaction(self._ledger.app_id, txn_version)],
        )

    def _sync_entries(self, versions: Sequence[int]) -> None:
        """Make log entries durable, and files made by a merge: delta-rs leaves their flush to the
        operating system."""
        entries = [entry_path(version) for version in versions]
        if self._sink.keys and store.is_local(self._files.uri):
            added = [path for entry in entries for path in _added(store.read(self._files, entry))]
            sizes = store.sizes(self._files, added)  # compacted and deleted since: none
            store.sync(self._files, [p for p, size in zip(added, sizes, strict=True) if size])
        store.sync(self._files, entries)

    def _delete(self, aborted: Sequence[DeltaCommittable]) -> None:
        """Delete the files, best effort: the next `list_lingering` comes back to leftovers."""
        try:
            paths = [p for c in aborted for p in pending_files.data_paths(self._files, c)]
            store.delete(self._files, paths)
        except OSError as error:
            _log.warning("%s: %s; the rest is left for the next start", self._name, error)
            return
        self._tidy(aborted)

    def _tidy(self, ended: Sequence[DeltaCommittable]) -> None:
        """Delete the staged rows and the records, best effort: the next `list_lingering` comes back
        to leftovers."""
        try:
            staged = [c for c in ended if self._sink.keys or c.merged_by[0]]
            found = [p for c in staged for p in pending_files.data_paths(self._files, c)]
            store.delete(self._files, [path for path in found if path.startswith(STAGED)])
            store.delete(self._files, [p for c in ended for p in pending_files.records(c)])
        except OSError as error:
            _log.info("%s: %s", self._name, error)
