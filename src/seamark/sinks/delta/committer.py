"""Driver side: one log entry commits, or aborts, all of an epoch's data files.

The table's log is the ledger. Every entry that commits or aborts transactions of this sink has two
marks: an application transaction (``txn``) with the id `app_id`, and the handles with their outcome
in its ``commitInfo``. The second mark is the proof, tied to the handle. The first makes these
entries exclude each other. Commit and abort load the table and read the ledger up to that version;
delta-rs then writes the entry only if no other one with this id has come since. So exactly one of a
commit and an abort of the same files succeeds, whoever calls them and whenever.

Invariants, besides those of `TableCommitter`:
- At most one entry has a handle's outcome.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from seamark.contracts.sink import SinkContext
from seamark.files import RowDirectory, open_directory
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError, PreflightError
from seamark.sinks.delta import preflight
from seamark.sinks.delta.committable import LOG, DeltaCommittable
from seamark.sinks.internal import pending_files, stored
from seamark.sinks.internal.servers import tell
from seamark.sinks.internal.table_committable import parse
from seamark.sinks.internal.table_committer import ABORTED, COMMITTED, TableCommitter

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

KEY = "seamark"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A handle's outcome, and the version of its log entry."""

    outcome: str
    version: int


class Ledger:
    """The log's entries read so far; each is read once."""

    def __init__(self, files: RowDirectory, job_id: str, sink_uid: str) -> None:
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
        entries = stored.reads(self._files, list(map(entry_path, numbers)))
        for number, data in zip(numbers, entries, strict=True):
            if data is None:
                stored.require_mounted(self._files, LOG)
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
    return f"{LOG}/{version:020d}.json"


def _added(entry: bytes | None) -> list[str]:
    """Return the files that a log entry adds, in the table or as change data."""
    lines = [json.loads(line) for line in (entry or b"").splitlines()]
    actions = [line.get("add") or line.get("cdc") for line in lines]
    return [unquote(action["path"]) for action in actions if action]


class DeltaCommitter(TableCommitter["DeltaSink", DeltaCommittable]):
    """Keeps the table's state between calls. Any thread may call, one at a time."""

    def __init__(self, sink: "DeltaSink", context: SinkContext) -> None:
        super().__init__(sink, context, _log)
        self._hadoop = context.hadoop.under(sink.storage_options)
        self._directory = open_directory(sink.path, self._hadoop)
        self._ledger = Ledger(self._directory, context.job_id, context.sink_uid)
        self._checked: object = None
        self._read_right: set[str] = set()
        self._newest = ""
        self._newest_at: float | None = None
        self._durable: set[int] = set()

    # --- the table as it is now

    def _refresh(self, committables: Sequence[DeltaCommittable]) -> None:
        """Load the table's newest version, and read the ledger up to it. A table made again since
        may have other columns, and a longer log: its entries are newer than those of the first."""
        if self._table is not None and self._directory.modified(self._newest) == self._newest_at:
            self._table.update_incremental()
        else:
            self._table = preflight.load(self._sink, self._hadoop)
        self._newest = entry_path(self._table.version())
        self._newest_at = self._directory.modified(self._newest)
        since = min(c.log_version for c in committables)
        self._ledger.forget(since)
        self._ledger.read(since, self._table.version())

    def _files(self) -> RowDirectory:
        stored.require_mounted(self._directory, LOG)
        return self._directory

    def _pending(self) -> Iterable[DeltaCommittable]:
        return pending_files.find(self._directory, self._context, DeltaCommittable)

    def _recorded(self, committable: DeltaCommittable) -> str | None:
        entry = self._ledger.entry(committable.handle)
        if entry is None:
            return None
        self._sync_entries([entry.version])
        return entry.outcome

    def _lost_trace(self, committable: DeltaCommittable) -> str:
        if self._ledger.knows(committable.log_version):
            return ""
        return (
            f"log entries since version {committable.log_version} have been cleaned up "
            "(delta.logRetentionDuration)"
        )

    def _named_files(self) -> set[str]:
        self._sync_entries([self._table.version()])
        return {uri.rpartition("/")[2] for uri in self._table.file_uris()}

    def _check_shape(self) -> None:
        """Raise CommitFailedError if the table has been altered and the files no longer fit."""
        if (shape := preflight.shape(self._table)) == self._checked:
            return
        try:
            findings = preflight.findings(self._table, self._sink, self._context, self._name)
            tell(findings, _log)
        except PreflightError as error:
            raise CommitFailedError(
                f"{error}. The table was altered while the job ran: its decided rows are kept and "
                "not visible; alter it back and start the job again, and they are committed"
            ) from error
        self._checked = shape

    def _newest_epoch(self) -> int:
        version = self._table.transaction_version(self._ledger.app_id)
        return -1 if version is None else int(version)

    # --- writing

    def _add(self, committables: Sequence[DeltaCommittable]) -> bool:
        self._check_shape()
        return (self._merge if committables[0].merged_by[0] else self._add_files)(committables)

    def _record_abort(self, committables: Sequence[DeltaCommittable]) -> bool:
        failpoints.reached("delta-abort-checked")
        handles = [committable.handle for committable in committables]
        recorded = self._append(ABORTED, handles, [], self._newest_epoch())
        if recorded:
            failpoints.reached("delta-aborted")
        return recorded

    def _merge(self, committables: Sequence[DeltaCommittable]) -> bool:
        """Merge rows staged with the same keys and op."""
        from deltalake.exceptions import CommitFailedError as RefusedError

        from seamark.sinks.delta import merging

        ordered = sorted(committables, key=lambda c: (c.epoch, parse(c.handle).partition))
        staged = [file for c in ordered for file in c.data_files]
        handles = [c.handle for c in ordered]
        epoch = ordered[-1].epoch
        failpoints.reached("delta-commit-checked")
        before = self._table.version()
        try:
            properties = self._properties(COMMITTED, handles, epoch)
            merging.merge(self._table, self._directory, staged, properties, self._read_right)
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
        versions = [version for version in versions if version not in self._durable]
        entries = [entry_path(version) for version in versions]
        if self._sink.keys and stored.is_local(str(self._directory)):
            added = [
                path for entry in entries for path in _added(stored.read(self._directory, entry))
            ]
            sizes = stored.sizes(self._directory, added)  # compacted and deleted since: none
            stored.sync(self._directory, [p for p, size in zip(added, sizes, strict=True) if size])
        stored.sync(self._directory, entries)
        self._durable.update(versions)
