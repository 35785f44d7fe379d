"""One attempt's data files as a committable, and a file's facts for a manifest."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seamark.sinks.internal.table_committable import TableCommittable, dump_file


@dataclass(frozen=True)
class FileFacts:
    """One Parquet file. Values are of Iceberg's single-value form, in base64; None is null.

    path: below the table's location.
    partition: the values of the partition fields.
    columns: of a field's id, the bytes in the file, the nulls, and the lower and the upper bound.
        Of rows to be merged it has every column, with zeros and without bounds.
    keys, op: of rows to be merged, which no snapshot names: the key columns, and `STAGED_OP` if the
        file has that column. Without keys the file is appended.
    """

    path: str
    size_bytes: int
    rows: int
    partition: Sequence[str | None]
    columns: Mapping[str, tuple[int, int, str | None, str | None]]
    keys: Sequence[str] = ()
    op: str = ""


@dataclass(frozen=True)
class IcebergCommittable(TableCommittable):
    """See `TableCommittable`: `log_version` is the table's last sequence number when the attempt
    began. `location`, `schema_id` and `spec_id` are the table's then, with which the files were
    written; the ids are -1, and unknown, in a committable found by listing."""

    table_uuid: str
    location: str
    schema_id: int = -1
    spec_id: int = -1

    @property
    def data_files(self) -> list[FileFacts]:
        """The files, parsed from their JSON."""
        return [FileFacts(**json.loads(text)) for text in self.files]

    @property
    def table(self) -> str:
        """See `TableCommittable`: a renamed table keeps its directory, which is the default of the
        next one of its old name too."""
        return self.table_uuid


def as_text(value: bytes | None) -> str | None:
    """Return bytes as text."""
    return None if value is None else base64.b64encode(value).decode()


def dump(facts: FileFacts) -> str:
    """Return a file's JSON text."""
    fields = asdict(facts)
    if not facts.keys:
        del fields["keys"], fields["op"]
    return dump_file(fields)


def data_files(committable: IcebergCommittable, schema: Any, spec: Any) -> list[Any]:
    """Return pyiceberg's `DataFile` of each file; the schema and the spec are the table's, with the
    ids that the committable has."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.typedef import Record

    types = [field.field_type for field in spec.partition_type(schema).fields]
    files = []
    for facts in committable.data_files:
        values = [
            None if value is None else from_bytes(kind, base64.b64decode(value))
            for kind, value in zip(types, facts.partition, strict=True)
        ]
        files.append(data_file(committable.location, facts, Record(*values), spec.spec_id))
    return files


def data_file(location: str, facts: FileFacts, partition: Any, spec_id: int) -> Any:
    """Return pyiceberg's `DataFile` of a file below a table's location; `partition` is the `Record`
    of its values."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    columns = {int(number): column for number, column in facts.columns.items()}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location.rstrip('/')}/{facts.path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=facts.rows,
        file_size_in_bytes=facts.size_bytes,
        column_sizes={number: size for number, (size, _, _, _) in columns.items()},
        value_counts=dict.fromkeys(columns, facts.rows),
        null_value_counts={number: nulls for number, (_, nulls, _, _) in columns.items()},
        nan_value_counts={},
        lower_bounds={n: base64.b64decode(low) for n, (_, _, low, _) in columns.items() if low},
        upper_bounds={n: base64.b64decode(up) for n, (_, _, _, up) in columns.items() if up},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = spec_id
    return file
