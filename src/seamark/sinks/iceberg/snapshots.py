"""One snapshot on a table's main branch, by one compare-and-set.

Not by pyiceberg's `Transaction`: it repeats a refused commit by itself, without another look at the
ledger, and deletes the manifest list of a commit whose answer was lost (docs/adr/0023-iceberg.md).
Nothing is repeated here, and nothing is deleted that a snapshot might name: a commit that is
refused leaves its manifests to `remove_orphan_files`.
"""

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from seamark.files import in_threads
from seamark.model import failpoints
from seamark.model.ignored import ignored

_AT_ONCE = 16
_FEWEST_TO_MERGE = "commit.manifest.min-count-to-merge", 100
_TARGET_BYTES = "commit.manifest.target-size-bytes", 8 << 20
_MERGES = "commit.manifest-merge.enabled", True
_FORGETS = "write.metadata.delete-after-commit.enabled", False
BACKWARDS_MS = 60_000
"""Iceberg's library reads no table whose times go back by more."""
HAS_DELETES = (
    "the table has delete files, written by another program: whoever rewrites a data file must "
    "apply them, which this sink does not"
)
NO_DELETES = (
    "rewrite its files (rewrite_data_files with delete-file-threshold=1 and "
    "remove-dangling-deletes=true), and have others delete by copy-on-write"
)
Group = tuple[Any, Any, Sequence[Any]]
"""Files of one schema and one partition spec: the schema, the spec, pyiceberg's `DataFile`s."""


def add(
    table: Any,
    groups: Sequence[Group],
    summary: Mapping[str, str],
    properties: Mapping[str, str],
    replaced: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Add a snapshot with these files, or with none, to the table as it was loaded; set the
    properties in the same commit. Raises pyiceberg's errors; after each the commit may have
    landed, after a refusal too: it may be one of a repeated request.

    replaced: the paths of files that the snapshot has no more, by their manifests' paths; None for
        an append. A change of the schema meanwhile refuses only a commit that replaces.
    """
    from pyiceberg.manifest import ManifestEntry, write_manifest_list
    from pyiceberg.table.refs import SnapshotRefType
    from pyiceberg.table.snapshots import (
        Operation,
        Snapshot,
        SnapshotSummaryCollector,
        Summary,
        update_snapshot_summaries,
    )
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    metadata, io = table.metadata, table.io
    head = metadata.snapshot_by_name("main")
    parent = head.snapshot_id if head else None
    snapshot_id, number = metadata.new_snapshot_id(), metadata.next_sequence_number()
    name = uuid.uuid4()
    counts = SnapshotSummaryCollector()
    manifests = []
    for place, (schema, spec, files) in enumerate(groups):
        for file in files:
            counts.metrics.add_file(file)
        entries = [ManifestEntry.from_args(data_file=file) for file in files]
        manifests.append(
            _manifest(table, schema, spec, f"{name}-m{place}", snapshot_id, entries, new=True)
        )
    others = []
    for manifest in _live_manifests(table):
        gone = (replaced or {}).get(manifest.manifest_path)
        if gone is None:
            others.append(manifest)
            continue
        spec, entries = metadata.specs()[manifest.partition_spec_id], _entries(io, manifest)
        for entry in entries:
            if entry.data_file.file_path in gone:
                counts.metrics.remove_file(entry.data_file)
        place, schema = len(manifests), schema_with(metadata, spec)
        manifests.append(
            _manifest(table, schema, spec, f"{name}-m{place}", snapshot_id, entries, gone=gone)
        )
    manifests += _merged(table, others, f"{name}-merged", snapshot_id)
    path = table.location_provider().new_metadata_location(f"snap-{snapshot_id}-0-{name}.avro")
    with write_manifest_list(
        2, io.new_output(path), snapshot_id, parent, number, "deflate"
    ) as writer:
        writer.add_manifests(manifests)
    operation = Operation.APPEND
    if replaced:
        operation = Operation.OVERWRITE if groups else Operation.DELETE
    told = Summary(operation=operation, **counts.build(), **summary)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        manifest_list=path,
        sequence_number=number,
        timestamp_ms=max(int(time.time() * 1000), latest_ms(metadata) + 1),
        schema_id=metadata.current_schema_id,
        summary=update_snapshot_summaries(told, head.summary if head else None),
    )
    failpoints.reached("iceberg-manifests-written")
    branch = SetSnapshotRefUpdate(
        ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id
    )
    updates = AddSnapshotUpdate(snapshot=snapshot), branch
    answer = commit(table, properties, *updates, schema_stays=replaced is not None)
    with ignored("the deletion of old metadata"):
        _forget(io, metadata, answer.metadata)


def commit(
    table: Any, properties: Mapping[str, str], *updates: Any, schema_stays: bool = False
) -> Any:
    """Set properties, and do `updates`, if the main branch, or the schema too, is still as it was
    loaded. Raises as `add`."""
    from pyiceberg.table.update import (
        AssertCurrentSchemaId,
        AssertRefSnapshotId,
        AssertTableUUID,
        SetPropertiesUpdate,
    )

    metadata = table.metadata
    head = metadata.snapshot_by_name("main")
    required: list[Any] = [
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id if head else None),
    ]
    if schema_stays:
        required.append(AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id))
    return table.catalog.commit_table(
        table, tuple(required), (*updates, SetPropertiesUpdate(updates=dict(properties)))
    )


def live_files(table: Any, wanted: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    """Return the wanted data files of the main branch, pyiceberg's `DataFile`, behind the paths of
    their manifests. Reads all manifests."""

    def files(manifest: Any) -> list[Any]:
        listed = (entry.data_file for entry in _entries(table.io, manifest))
        return [file for file in listed if wanted(file)]

    manifests = _data_manifests(table)
    listed = in_threads(files, manifests, _AT_ONCE)
    return [
        (manifest.manifest_path, file)
        for manifest, files_of in zip(manifests, listed, strict=True)
        for file in files_of
    ]


def has_deletes(table: Any) -> bool:
    """Whether the main branch has delete files."""
    return len(_data_manifests(table)) < len(_live_manifests(table))


def _live_manifests(table: Any) -> list[Any]:
    head = table.metadata.snapshot_by_name("main")
    others = head.manifests(table.io) if head else []
    return [m for m in others if m.has_added_files() or m.has_existing_files()]


def _data_manifests(table: Any) -> list[Any]:
    from pyiceberg.manifest import ManifestContent

    return [m for m in _live_manifests(table) if m.content == ManifestContent.DATA]


def schema_with(metadata: Any, spec: Any) -> Any:
    """Return the newest schema with all columns of a partition spec: an old one's may be gone."""
    sources = {field.source_id for field in spec.fields}
    schemas = sorted(metadata.schemas, key=lambda schema: -schema.schema_id)
    fit = (s for s in [metadata.schema(), *schemas] if sources <= {*s.field_ids})
    return next(fit, metadata.schema())


def latest_ms(metadata: Any) -> int:
    """Return the time of the table's newest change, by the clock of the one who made it."""
    latest: int = max(
        [metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log)]
    )
    return latest


def behind_ms(metadata: Any) -> int:
    """Return by how much this machine's clock is behind the table's newest change; below 0 if it is
    ahead, as it should be."""
    return latest_ms(metadata) - int(time.time() * 1000)


def file_names(table: Any) -> set[str]:
    """Return the name of every file of every snapshot. Reads all manifests."""
    manifests = {m.manifest_path: m for s in table.snapshots() for m in s.manifests(table.io)}
    read = partial(_entries, table.io)
    lists = in_threads(read, list(manifests.values()), _AT_ONCE)
    paths = [entry.data_file.file_path for entries in lists for entry in entries]
    return {path.rpartition("/")[2] for path in paths}


def _manifest(
    table: Any,
    schema: Any,
    spec: Any,
    name: str,
    snapshot_id: int,
    entries: Sequence[Any],
    *,
    new: bool = False,
    gone: Collection[str] = (),
) -> Any:
    """Write a manifest of new files, or of files that other manifests name, of which those at the
    paths `gone` are deleted; return its facts."""
    from pyiceberg.manifest import write_manifest

    path = table.location_provider().new_metadata_location(f"{name}.avro")
    file = table.io.new_output(path)
    with write_manifest(2, spec, schema, file, snapshot_id, "deflate") as writer:
        for entry in entries:
            is_gone = entry.data_file.file_path in gone
            (writer.add if new else writer.delete if is_gone else writer.existing)(entry)
    return writer.to_manifest_file()


def _merged(table: Any, manifests: Sequence[Any], name: str, snapshot_id: int) -> list[Any]:
    """Return the manifests with the small ones made one, once there are too many of them."""
    from pyiceberg.manifest import ManifestContent

    metadata, io = table.metadata, table.io
    spec = metadata.spec()
    target = _setting(metadata, *_TARGET_BYTES)
    small = [
        m
        for m in manifests
        if m.content == ManifestContent.DATA
        and m.partition_spec_id == spec.spec_id
        and m.manifest_length < target
    ]
    fewest = max(2, _setting(metadata, *_FEWEST_TO_MERGE))
    if not _setting(metadata, *_MERGES) or len(small) < fewest:
        return list(manifests)
    total = 0
    chosen: list[Any] = []
    for manifest in small:
        if (total := total + manifest.manifest_length) > target and len(chosen) > 1:
            break
        chosen.append(manifest)
    read = partial(_entries, io)
    entries = [entry for listed in in_threads(read, chosen, _AT_ONCE) for entry in listed]
    schema = metadata.schema()
    merged = _manifest(table, schema, spec, name, snapshot_id, entries)
    return [merged, *(m for m in manifests if m not in chosen)]


def _entries(io: Any, manifest: Any) -> list[Any]:
    """Return a manifest's entries of files that are there."""
    entries: list[Any] = manifest.fetch_manifest_entry(io, discard_deleted=True)
    return entries


def _forget(io: Any, before: Any, after: Any) -> None:
    """Delete the metadata files that the table's log has dropped, if its properties say so.
    pyiceberg does it only for commits of its own."""
    if _setting(after, *_FORGETS):
        kept = {entry.metadata_file for entry in after.metadata_log}
        for entry in before.metadata_log:
            if entry.metadata_file not in kept:
                io.delete(entry.metadata_file)


def _setting(metadata: Any, name: str, default: int) -> int:
    """Return a property of the table: a number, or true or false."""
    value = metadata.properties.get(name)
    if value is None:
        return default
    return bool(value.lower() == "true") if isinstance(default, bool) else int(value)
