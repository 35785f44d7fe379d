"""Staged changes into the table, by copy-on-write: each data file with a row of one of the keys is
written again without it, and the changed rows go into new files.

pyiceberg writes neither position nor equality deletes that it reads itself
(docs/adr/0023-iceberg.md). Rows pass through in batches; what stays in memory is the epoch's keys,
and the replaced rows' values of columns that the DataFrame lacks.

Invariants:
- All new files are one attempt's, with records of its own (`pending_files`). The snapshot that
  names them has its outcome too: so the files of a dead commit are found and deleted as a task's.
- A file is deleted here only if the one commit that could name it can land no more.
- A call that is given up goes on in its thread, beside the next try: it has files of its own, and
  sets nothing that the next try reads.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.read_back import DELETE
from seamark.contracts.record_batches import numbers
from seamark.files import RowDirectory
from seamark.model.errors import CommitFailedError
from seamark.model.ignored import ignored
from seamark.sinks.iceberg import partitions, snapshots
from seamark.sinks.iceberg.candidates import Keys
from seamark.sinks.iceberg.committable import FileFacts, IcebergCommittable, data_file
from seamark.sinks.iceberg.rows import read_rows
from seamark.sinks.iceberg.statistics import statistics
from seamark.sinks.iceberg.writer import DATA, OP_ID, codec, whole
from seamark.sinks.internal import pending_files, stored
from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.internal.data_files import DataFiles, WrittenFile
from seamark.sinks.internal.table_committable import file_name
from seamark.sinks.internal.table_merge import CHANGED, reduced

_ROW = "_seamark_row"
Replaced = Mapping[str, Collection[str]]
"""Paths of data files by their manifests' paths."""
Call = Callable[[Callable[[], Any]], Any]
"""Does something with the table's files, with a deadline and errors of one kind."""


@dataclass(frozen=True)
class _Rewritten:
    """What became of a data file: whether a row is replaced, the file with the others, if there are
    any, and of replaced rows the columns that the DataFrame lacks, with their keys' places."""

    changed: bool
    files: Sequence[Any] = ()
    kept: pa.Table | None = None
    places: Any = ()


class Merge:
    """Changes staged with the same keys and op, in their order, for as many tries of a commit as it
    takes: files once written are used again.

    name: the sink's, for messages.
    committable: the attempt that the new files belong to.
    """

    def __init__(
        self,
        name: str,
        files: RowDirectory,
        committable: IcebergCommittable,
        staged: Sequence[IcebergCommittable],
    ) -> None:
        self.committable = committable
        self.staged = staged
        self._name = name
        self._files = files
        self._lock = threading.Lock()
        self._ended = False
        self._numbers = count()
        self._written: set[str] = set()
        self._used: set[str] = set()
        self._named: set[str] = set()
        self._schema_id = -1
        self._parent: Any = None
        self._rewritten: dict[str, _Rewritten] = {}
        self._new: tuple[object, Sequence[Any]] = (None, ())

    def prepare(self, table: Any, call: Call) -> tuple[list[snapshots.Group], Replaced]:
        """Return the files that the table is to have more, and those to be replaced. Raises
        CommitFailedError if the table has no such key any more, or has delete files."""
        metadata = table.metadata
        if call(partial(snapshots.has_deletes, table)):
            raise CommitFailedError(
                f"{self._name}: {snapshots.HAS_DELETES}. The decided rows are kept and not "
                f"visible: {snapshots.NO_DELETES}, and start the job again"
            )
        if self._schema_id != metadata.current_schema_id:
            self._read_keys(table, call)
        schema, specs = metadata.schema(), metadata.specs()
        replaced: dict[str, set[str]] = {}
        groups: dict[int, list[Any]] = {}
        used: dict[str, _Rewritten] = {}

        def wanted(file: Any) -> bool:
            return self._keys.may_be_in(file, specs[file.spec_id])

        for manifest, file in call(partial(snapshots.live_files, table, wanted)):
            path = file.file_path
            if path not in self._rewritten:
                self._rewritten[path] = call(partial(self._rewrite, table, file))
            if self._rewritten[path].changed:
                used[path] = self._rewritten[path]
                replaced.setdefault(manifest, set()).add(path)
                groups.setdefault(file.spec_id, []).extend(used[path].files)
        spec = specs.get(self.staged[-1].spec_id)  # by whose rules the tasks have checked the rows
        if spec is None or not {field.source_id for field in spec.fields} <= {*schema.field_ids}:
            spec = metadata.spec()
        state = spec.spec_id, frozenset(used) if self._others else None
        if self._new[0] != state:
            changes = call(partial(self._write_changes, table, spec, list(used.values())))
            self._new = state, changes
        groups.setdefault(spec.spec_id, []).extend(self._new[1])
        below = f"{metadata.location.rstrip('/')}/"
        self._used = {f.file_path.removeprefix(below) for files in groups.values() for f in files}
        self._rewritten = {p: f for p, f in self._rewritten.items() if p in used or not f.changed}
        head = metadata.snapshot_by_name("main")
        if (parent := head and head.snapshot_id) != self._parent:  # earlier tries can land no more
            self._delete(self._written - self._used)
            self._named = set()
        self._parent = parent
        self._named |= self._used
        return [
            (snapshots.schema_with(metadata, specs[number]), specs[number], files)
            for number, files in groups.items()
            if files
        ], replaced

    def end(self, *, landed: bool) -> None:
        """Let calls that go on leave no file. If the last try has landed, delete the files that it
        did not name; else those that no try named which may have landed."""
        self._ended = True
        self._delete(self._written - (self._used if landed else self._named))

    def _delete(self, unused: set[str]) -> None:
        with ignored("the deletion of files of a lost race"):
            stored.delete(self._files, sorted(unused))

    # --- the epoch's changes

    def _read_keys(self, table: Any, call: Call) -> None:
        """Find the last change of each key, in the table's columns as they are now."""
        from pyiceberg.schema import Schema
        from pyiceberg.types import NestedField, StringType

        metadata = table.metadata
        schema = metadata.schema()
        schemas = {one.schema_id: one for one in metadata.schemas}
        keys, op = self.staged[0].merged_by
        written = schemas.get(self.staged[0].schema_id, schema)
        there = {field.field_id: field for field in schema.fields}
        ids = [written.find_field(key).field_id for key in keys]
        if lost := [key for key, number in zip(keys, ids, strict=True) if number not in there]:
            raise CommitFailedError(
                f"{self._name}: the table has no key column {lost[0]!r} any more. The decided rows "
                "are kept and not visible; restore it and start the job again: they are committed"
            )
        given = {int(n) for one in self.staged for facts in one.data_files for n in facts.columns}
        self._given = Schema(*[field for number, field in there.items() if number in given])
        self._others = [field.name for number, field in there.items() if number not in given]
        self._key_columns = Schema(*[there[number] for number in ids])
        names = [there[number].name for number in ids]
        op_field = NestedField(OP_ID, STAGED_OP, StringType(), required=False)
        columns = Schema(*self._key_columns.fields, *([op_field] if op else []))
        rows = pa.Table.from_batches(call(lambda: list(self._staged(table, columns))))
        place = np.arange(rows.num_rows)
        changes = reduced(rows.append_column(_ROW, pa.array(place)), names, op)
        self._keys = Keys(changes.select(names).combine_chunks(), self._key_columns)
        what = changes[STAGED_OP].combine_chunks()
        self._is_changed = numbers(pc.equal(what, CHANGED)).view(bool)
        is_there = numbers(pc.not_equal(what, DELETE)).view(bool)
        self._change = np.full(rows.num_rows, -1)
        self._change[changes[_ROW].to_numpy()[is_there]] = np.flatnonzero(is_there)
        self._rewritten, self._new = {}, (None, ())
        self._schema_id = metadata.current_schema_id

    def _staged(self, table: Any, columns: Any) -> Iterator[pa.RecordBatch]:
        """Yield the staged rows."""
        from pyiceberg.typedef import Record

        for one in self.staged:
            for facts in one.data_files:
                bare = replace(facts, columns={})
                yield from read_rows(table, columns, data_file(one.location, bare, Record(), -1))

    # --- files

    def _rewrite(self, table: Any, file: Any) -> _Rewritten:
        """Write a file's rows without those of the keys into another of the same partition."""
        batches = list(read_rows(table, self._key_columns, file))
        places = self._keys.places(pa.Table.from_batches(batches)) if batches else np.empty(0)
        if not (places >= 0).any():
            return _Rewritten(changed=False)
        if (places >= 0).all() and not self._others:
            return _Rewritten(changed=True)
        kept, at, start = [], [], 0
        with self._new_files(table, whole) as data:
            for batch in read_rows(table, table.schema(), file):
                place = places[start : start + batch.num_rows]
                start += batch.num_rows
                if (place < 0).any():
                    data.write(batch.take(pa.array(np.flatnonzero(place < 0))))
                if self._others:
                    chosen = np.flatnonzero((place >= 0) & self._is_changed[place])
                    kept.append(batch.select(self._others).take(pa.array(chosen)))
                    at.append(place[chosen])
            written = data.close()
        files = [self._data_file(table, one, file.partition, file.spec_id) for one in written]
        if not kept:
            return _Rewritten(True, files)
        return _Rewritten(True, files, pa.Table.from_batches(kept), np.concatenate(at))

    def _write_changes(
        self, table: Any, spec: Any, replaced: Sequence[_Rewritten]
    ) -> Sequence[Any]:
        """Write the rows of all changes but deletions."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.typedef import Record

        schema = table.schema()
        arrow = schema_to_pyarrow(schema)
        kept = [one for one in replaced if one.kept is not None]
        others = pa.concat_tables([one.kept for one in kept]).combine_chunks() if kept else None
        row_of = np.full(len(self._is_changed), -1)
        for_each = np.concatenate([np.empty(0, np.int64), *(one.places for one in kept)])
        row_of[for_each] = np.arange(len(for_each))
        start = 0
        with self._new_files(table, partitions.splitter(spec, schema)) as data:
            for batch in self._staged(table, self._given):
                change = self._change[start : start + batch.num_rows]
                start += batch.num_rows
                chosen = np.flatnonzero(change >= 0)
                if len(chosen) == 0:
                    continue
                rows = batch.take(pa.array(chosen))
                columns = dict(zip(rows.schema.names, rows.columns, strict=True))
                if others is not None:
                    old = row_of[change[chosen]]
                    taken = others.take(pa.array(old, mask=old < 0)).combine_chunks()
                    columns |= {n: taken[n].combine_chunks() for n in self._others}
                values = [
                    columns.get(field.name, pa.nulls(rows.num_rows, field.type)) for field in arrow
                ]
                data.write(pa.RecordBatch.from_arrays(values, schema=arrow))
            written = data.close()
        return [self._data_file(table, one, Record(*one.values), spec.spec_id) for one in written]

    @contextlib.contextmanager
    def _new_files(
        self,
        table: Any,
        split: Callable[[pa.RecordBatch], Iterator[tuple[partitions.Values, pa.RecordBatch]]],
    ) -> Iterator[DataFiles[partitions.Values]]:
        """Give the files to write to; discard them after an error, or if nobody waits any more."""
        handle = self.committable.handle
        data = DataFiles(
            self._files,
            split,
            lambda *_: f"{DATA}/{file_name(handle, next(self._numbers))}",
            self._announce,
            codec(table.metadata),
        )
        try:
            yield data
            if self._ended:
                raise TimeoutError("the merge has ended meanwhile")
        except BaseException:
            data.discard()
            raise

    def _announce(self, paths: Sequence[str]) -> None:
        with self._lock:
            self.committable = replace(self.committable, records=self.committable.records + 1)
            announced = self.committable
            self._written.update(paths)
        pending_files.write(self._files, announced, paths)

    @staticmethod
    def _data_file(table: Any, file: WrittenFile[Any], partition: Any, spec_id: int) -> Any:
        columns = statistics(file, table.schema())
        facts = FileFacts(file.path, file.size_bytes, file.metadata.num_rows, (), columns)
        return data_file(table.metadata.location, facts, partition, spec_id)
