"""How a directory's files are laid out, as their readers must know it: kept in records beside them,
and compared at each start.

A directory is read as one table. Spark tells a reader nothing of files in another format or with
other partition columns than the ones it goes by, and reads CSV by place. So a program whose files
could not be read together with the earlier ones is refused before it writes a row. What is borne
was seen on Spark 4.2: for Parquet what ``mergeSchema`` reads, for text what a reader with the wider
of two types reads.

Invariant: any two records of a directory fit each other, but while two drivers start at once. A
record is never changed; a program whose layout is new there adds one.
"""

import re
import uuid
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from seamark.contracts.committables import dump_committable, load_committable
from seamark.files import RowDirectory
from seamark.files.s3 import S3Directory
from seamark.model.schema import Schema, type_parts
from seamark.sinks.files.formats import COMPRESSIONS, JSON_COLUMN
from seamark.sinks.internal import stored
from seamark.sinks.internal.columns import struct_fields
from seamark.sinks.internal.partitions import directory_values

if TYPE_CHECKING:
    from seamark.sinks.files.sink import FileSink

PLACE = "_seamark/layout"
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_EXACT_AS_DOUBLE = ("tinyint", "smallint", "int", "float", "double")
_WRITTEN_AS_TEXT = ("decimal", "float", "double", "array<", "map<", "struct<")
"""Types that CSV has as text; a query of ``format("seamark")`` gives them as text already."""
_STRINGS = re.compile(r"(?:var)?char\(\d+\)|string collate \w+")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class Unfit(Exception):  # noqa: N818 - no error: what a finding says
    """Files of two layouts cannot be read together: what differs, and how to mend it."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.found, self.remedy = found, remedy


@dataclass(frozen=True)
class Layout:
    """One program's files. `columns` and `types` are those in the files, without the partition
    columns; empty if they are not known. `csv` has the settings of CSV as ``name=value``."""

    format: str
    partition_by: tuple[str, ...]
    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    csv: tuple[str, ...] = ()

    @classmethod
    def of(cls, sink: "FileSink", schema: Schema) -> "Layout":
        """Return the layout of a sink's files for this DataFrame."""
        data = [c for c in schema if c.name not in (*sink.partition_by, JSON_COLUMN)]
        settings = ("header", "delimiter", "null_value", "escape") if sink.format == "csv" else ()
        return cls(
            sink.format,
            tuple(sink.partition_by),
            tuple(column.name for column in data),
            tuple(_STRINGS.sub("string", column.type) for column in data),
            tuple(f"{name}={getattr(sink, name)!r}" for name in settings),
        )

    def require_fit(self, earlier: "Layout") -> None:
        """Raise Unfit if files of this program are not read together with `earlier` ones."""
        if self._place != earlier._place:
            raise Unfit(
                f"it has {earlier}, and this program gives {self}: Spark's readers would fail, or "
                "show a part of the rows alone",
                f"give {earlier}",
            )
        if self.csv != earlier.csv:
            given, found = (", ".join(one.csv) for one in (self, earlier))
            raise Unfit(
                f"its files have {found}, and this program gives {given}: no reader takes both",
                f"give {found}",
            )
        if not self.columns or not earlier.columns:
            return
        if self.format == "csv":
            self._require_places(earlier)
        else:
            fields, known = (
                dict(zip(one.columns, one.types, strict=True)) for one in (self, earlier)
            )
            # Spark reads Parquet by names whose case does not count, but for those in structs.
            misfit = _misfit_of_fields(
                fields, known, self.format, any_case=self.format == "parquet"
            )
            if misfit:
                raise Unfit(f"{misfit}: Spark's readers do not take both", "CAST or rename it")

    def _require_places(self, earlier: "Layout") -> None:
        """CSV is read by place: more columns, or fewer, may be at the end alone."""
        for number, (name, known) in enumerate(zip(self.columns, earlier.columns, strict=False)):
            if name.lower() != known.lower():
                raise Unfit(
                    f"column {number + 1} of its files is {known!r}, and {name!r} in this program: "
                    "CSV is read by place",
                    f"select {', '.join(earlier.columns)} in this order, new columns behind them",
                )
            if misfit := _misfit(self.types[number], earlier.types[number], "csv"):
                raise Unfit(
                    f"column {name!r} {misfit}: Spark's readers do not take both", "CAST it"
                )

    @property
    def _place(self) -> tuple[str, ...]:
        return (self.format, *(name.lower() for name in self.partition_by))

    def __str__(self) -> str:
        by = ", ".join(map(repr, self.partition_by))
        return f"{self.format} files partitioned by {by}" if by else f"plain {self.format} files"


def require_fit(directory: RowDirectory, wanted: Layout, *, record: bool) -> None:
    """Compare a program's layout with those of the directory's files. With `record`, add it to them
    if it is new there. Raises Unfit, CorruptRecordError, OSError."""
    known = _records(directory)
    _compare(directory, wanted, known)
    if not known:
        _require_fit_of_files(directory, wanted)
    if record and wanted not in known.values():
        name = _write(directory, wanted)
        try:  # of two drivers that start at once, one at least sees the other's record
            others = {path: one for path, one in _records(directory).items() if path != name}
            _compare(directory, wanted, others)
        except Unfit:
            directory.remove(name)
            raise


def _compare(directory: RowDirectory, wanted: Layout, known: dict[str, Layout]) -> None:
    for path, earlier in known.items():
        try:
            wanted.require_fit(earlier)
        except Unfit as unfit:
            moved = "they are gone" if wanted._place != earlier._place else "no reader minds"
            remedy = (
                f"{unfit.remedy}, or give another directory; if {moved}, delete the earlier files' "
                f"record {directory}/{path}"
            )
            raise Unfit(unfit.found, remedy) from None


def _records(directory: RowDirectory) -> dict[str, Layout]:
    paths = [f"{PLACE}/{name}" for name in sorted(directory.list(PLACE))]
    read = zip(paths, stored.reads(directory, paths), strict=True)
    return {path: load_committable(Layout, data) for path, data in read if data is not None}


def _write(directory: RowDirectory, layout: Layout) -> str:
    """Add a record, which appears whole: no condition is asked of the store."""
    name = uuid.uuid4().hex
    path, data = f"{PLACE}/{name}", dump_committable(layout)
    if isinstance(directory, S3Directory):
        stored.write(directory, path, data)
    else:
        stored.write(directory, f"{PLACE}/.{name}", data)
        directory.rename(f"{PLACE}/.{name}", path)  # type: ignore[attr-defined]
        directory.sync([path])  # type: ignore[attr-defined]
    return path


def _require_fit_of_files(directory: RowDirectory, wanted: Layout) -> None:
    """Compare with the names of files that no record tells of: another program's, or those of a
    Seamark without records. A directory in which files of this layout are is taken as it is."""
    layouts = {layout._place: layout for path in directory.tree() if (layout := _of_name(path))}
    if layouts and wanted._place not in layouts:
        earlier = next(iter(layouts.values()))
        try:
            wanted.require_fit(earlier)
        except Unfit as unfit:
            raise Unfit(unfit.found, f"{unfit.remedy}, or give another directory") from None


def _of_name(path: str) -> Layout | None:
    """Return what the name of a file tells that Spark's readers see; None for any other."""
    *directories, name = path.split("/")
    if name.startswith((".", "_")) or any("=" not in part for part in directories):
        return None
    endings = {suffix[1:].lower() for suffix in PurePosixPath(name).suffixes[-2:]}
    formats = endings & COMPRESSIONS.keys()
    return Layout(formats.pop(), tuple(directory_values(path))) if formats else None


# --- types


def _misfit_of_fields(
    fields: dict[str, str], known: dict[str, str], form: str, *, any_case: bool
) -> str:
    """Return what keeps readers by name from taking both sets of fields; "" for nothing."""
    spelled = {name.lower(): name for name in known}
    for name, kind in fields.items():
        other = spelled.get(name.lower())
        if other is None:
            continue
        if other != name and not any_case:
            return f"{name!r} in this program is {other!r} in its files"
        if misfit := _misfit(kind, known[other], form):
            return f"column {name!r} {misfit}"
    return ""


def _misfit(kind: str, known: str, form: str) -> str:
    """Return what keeps readers from taking values of both types; "" for nothing."""
    differ = f"is {known} in its files, and {kind} in this program"
    if kind == known:
        return ""
    name, parts = type_parts(kind)
    other, others = type_parts(known)
    if name == other == "struct":
        try:
            fields, fields_there = dict(struct_fields(parts)), dict(struct_fields(others))
        except ValueError:  # a name that cannot be told from the type's own punctuation
            return differ
        misfit = _misfit_of_fields(fields, fields_there, form, any_case=False)
        return f"{differ}: {misfit}" if misfit else ""
    if name == other and len(parts) == len(others) > 0:
        within = zip(parts, others, strict=True)
        return differ if any(_misfit(a, b, form) for a, b in within) else ""
    decimals = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(known)
    if all(decimals):
        (digits, scale), (digits_there, scale_there) = (
            map(int, match.groups()) for match in decimals if match
        )
        if scale == scale_there:
            return ""
        most = max(digits - scale, digits_there - scale_there) + max(scale, scale_there)
        return "" if form != "parquet" and most <= 38 else differ
    if form != "parquet" and any({kind, known} <= set(row) for row in (_WHOLE, _EXACT_AS_DOUBLE)):
        return ""
    beside = {"string", kind, known} - {"string"}
    as_text = form == "csv" and len(beside) == 1 and beside.pop().startswith(_WRITTEN_AS_TEXT)
    return "" if as_text else differ
