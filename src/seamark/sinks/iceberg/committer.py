"""Driver side: one snapshot commits, or aborts, all of an epoch's data files.

A commit loads the table, reads the ledger in it and adds a snapshot on condition that the main
branch is still at the snapshot that was loaded. The snapshot and the property with the outcomes are
one step of the catalog's. An abort is a snapshot too, without files: a commit that comes late finds
another snapshot than the one it was made for. So exactly one of a commit and an abort of the same
files succeeds, whoever calls them and whenever.

Invariants, besides those of `TableCommitter`:
- At most one snapshot has a handle's outcome.
- An answer that is lost is read back from the table, never guessed.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from seamark.contracts.attempt_name import AttemptName, owner_path, random_token
from seamark.contracts.sink import CommitOutcome, SinkContext
from seamark.files import RowDirectory
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError
from seamark.sinks.iceberg import ledger, snapshots, types
from seamark.sinks.iceberg.catalog import CALL_S, METADATA, READ_S, RefusedError
from seamark.sinks.iceberg.committable import IcebergCommittable, data_files
from seamark.sinks.iceberg.merging import Merge
from seamark.sinks.iceberg.preflight import VERSION
from seamark.sinks.internal import pending_files, stored
from seamark.sinks.internal.table_committable import parse
from seamark.sinks.internal.table_committer import ABORTED, COMMITTED, TableCommitter

if TYPE_CHECKING:
    from seamark.sinks.iceberg.sink import IcebergSink

_log = logging.getLogger(__name__)


class IcebergCommitter(TableCommitter["IcebergSink", IcebergCommittable]):
    """Keeps nothing between calls. Any thread may call, one at a time."""

    def __init__(self, sink: "IcebergSink", context: SinkContext) -> None:
        super().__init__(sink, context, _log)
        self._catalog = sink.catalog_table(context.hadoop)
        self._ledger: Any = None
        self._merge: Merge | None = None

    def commit(self, committables: Sequence[IcebergCommittable]) -> Sequence[CommitOutcome]:
        """See `TableCommitter`; clean up a merge whose rows another driver has committed."""
        outcomes = super().commit(committables)
        if CommitOutcome.RETRY not in outcomes:
            self._end_merge(landed=False)
        return outcomes

    # --- the table as it is now

    def _refresh(self, committables: Sequence[IcebergCommittable]) -> None:
        """Raise CommitFailedError for files of another table than the one there now, and for one of
        a version that pyiceberg does not write."""
        self._table = self._catalog.load()
        metadata = self._table.metadata
        if committables and metadata.format_version != VERSION:
            raise CommitFailedError(
                f"{self._name}: the table is of format version {metadata.format_version} now, "
                f"which this sink does not write. Decided rows are kept and not visible; register "
                f"its last metadata of version {VERSION} again and start the job: they are "
                "committed"
            )
        for one in committables:
            if (one.table_uuid, one.location) != (str(metadata.table_uuid), metadata.location):
                raise CommitFailedError(
                    f"{self._name}: the rows of epoch {one.epoch} were written for the table at "
                    f"{one.location} with the id {one.table_uuid}, and the catalog has another one "
                    f"now, at {metadata.location} with the id {metadata.table_uuid}: the table was "
                    "dropped, replaced or moved while the job ran. Register the first one again "
                    "and start the job, and its rows are committed"
                )
        self._ledger = ledger.Ledger(metadata)

    def _files(self) -> RowDirectory:
        if self._table is None:
            self._refresh(())
        files: RowDirectory = self._table.io.directory(self._table.metadata.location)
        stored.require_mounted(files, METADATA)
        return files

    def _pending(self) -> Iterable[IcebergCommittable]:
        self._refresh(())
        metadata = self._table.metadata
        table = str(metadata.table_uuid)
        of_this = partial(IcebergCommittable, table_uuid=table, location=metadata.location)
        return pending_files.find(self._files(), self._context, of_this, table)

    def _recorded(self, committable: IcebergCommittable) -> str | None:
        outcome: str | None = self._ledger.outcome(committable.handle)
        return outcome

    def _lost_trace(self, committable: IcebergCommittable) -> str:
        if self._ledger.knows(committable.handle, committable.log_version):
            return ""
        return (
            f"snapshots since sequence number {committable.log_version} are expired, and the "
            f"table's property {ledger.PROPERTY} reaches less far back"
        )

    def _named_files(self) -> set[str]:
        return self._catalog.call(partial(snapshots.file_names, self._table), READ_S)

    # --- writing

    def _add(self, committables: Sequence[IcebergCommittable]) -> bool:
        added = self._write(COMMITTED, committables, "iceberg-commit-checked", "iceberg-committed")
        if added and committables[0].merged_by[0]:
            self._end_merge(landed=True)
        return added

    def _record_abort(self, committables: Sequence[IcebergCommittable]) -> bool:
        return self._write(ABORTED, committables, "iceberg-abort-checked", "iceberg-aborted")

    def _write(
        self, outcome: str, open_: Sequence[IcebergCommittable], before: str, after: str
    ) -> bool:
        """Add a snapshot that gives these their outcome, between two failpoints. Return False if
        the catalog refuses it. It may be there all the same, as after any error."""
        failpoints.reached(before)
        table = self._table
        handles = [one.handle for one in open_]
        number = table.metadata.next_sequence_number()
        groups = self._groups(open_) if outcome == COMMITTED else []
        replaced = None
        try:
            if outcome == COMMITTED and open_[0].merged_by[0]:
                merge = self._merging(open_)
                groups, replaced = merge.prepare(table, partial(self._catalog.call, seconds=READ_S))
                handles.append(merge.committable.handle)
                failpoints.reached("iceberg-files-rewritten")
            properties = self._ledger.with_(outcome, handles, number)
            summary = ledger.summary(outcome, handles)
            add = partial(snapshots.add, table, groups, summary, properties, replaced)
            # A commit that replaces files reads and writes each of their manifests.
            self._catalog.call(add, CALL_S * (1 + len(replaced or ())))
        except RefusedError as error:
            _log.info("%s: %s; reading the table again", self._name, error)
            return False
        except FileNotFoundError:
            if self._catalog.load().metadata.last_sequence_number < number:
                raise
            return False  # another program has replaced the file, and deleted it
        failpoints.reached(after)
        return True

    # --- changes by key

    def _merging(self, staged: Sequence[IcebergCommittable]) -> Merge:
        """Return the merge of these, begun in an earlier try or now."""
        staged = sorted(staged, key=lambda c: (c.epoch, parse(c.handle).partition))
        merge = self._merge
        if merge is not None and merge.staged == staged:
            if self._ledger.outcome(merge.committable.handle) is None:
                return merge
            self._delete([merge.committable])  # a later driver has aborted it
        metadata = self._table.metadata
        name = AttemptName(
            owner_path(self._context), self._context.generation, staged[-1].epoch, 0, 0,
            random_token(),
        )  # fmt: skip
        attempt = IcebergCommittable(
            str(name), metadata.last_sequence_number, 0, 0, (),
            table_uuid=str(metadata.table_uuid), location=metadata.location,
        )  # fmt: skip
        self._merge = Merge(self._name, self._files(), attempt, staged)
        return self._merge

    def _end_merge(self, *, landed: bool) -> None:
        """Clean up after a merge whose snapshot is there, or whose rows another's has: it can land
        no more. Else the next start finds its files, as those of a dead attempt."""
        merge = self._merge
        if merge is None:
            return
        merge.end(landed=landed)
        told = self._ledger.outcome
        if landed or told(merge.committable.handle) == COMMITTED:
            self._tidy([merge.committable])
        elif all(told(one.handle) for one in merge.staged):
            self._delete([merge.committable])
        self._merge = None

    def _groups(self, committables: Sequence[IcebergCommittable]) -> list[snapshots.Group]:
        """Return the files to be appended, by the schema and the partition spec with which they
        were written. Raises CommitFailedError for rows that the table no longer takes."""
        metadata = self._table.metadata
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        specs = metadata.specs()
        groups: dict[tuple[int, int], list[Any]] = {}
        for one in committables:
            if one.spec_id not in specs:
                raise CommitFailedError(
                    f"{self._name}: the rows of epoch {one.epoch} were written with the partition "
                    f"spec {one.spec_id}, which the table no longer has. They are decided and not "
                    "visible; restore the table's metadata and start the job again"
                )
            schema = schemas.get(one.schema_id, metadata.schema())
            if column := types.unreadable(schema, metadata.schema()):
                raise CommitFailedError(
                    f"{self._name}: column {column!r} has another type now than in the files of "
                    f"epoch {one.epoch}, and nobody could read them. Their rows are decided and "
                    "not visible; alter it back and start the job again, and they are committed"
                )
            if not one.merged_by[0]:
                of_one = data_files(one, schema, specs[one.spec_id])
                groups.setdefault((one.schema_id, one.spec_id), []).extend(of_one)
        return [
            (schemas.get(schema_id, metadata.schema()), specs[spec_id], files)
            for (schema_id, spec_id), files in groups.items()
        ]
