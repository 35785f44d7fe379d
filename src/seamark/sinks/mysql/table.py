"""The target table: the columns of a new table, and whether an existing one can hold a DataFrame.

A type fits if every value either arrives unchanged or is refused with a warning (`loading.py` makes
it an error). `misfit` names the alterations that MySQL makes silently.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.schema import Column, Schema
from seamark.sinks.mysql import connection as server

_TYPES = {
    "boolean": "TINYINT(1)", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INT",
    "bigint": "BIGINT", "float": "DOUBLE", "double": "DOUBLE", "date": "DATE",
    "timestamp": "DATETIME(6)", "timestamp_ntz": "DATETIME(6)", "binary": "LONGBLOB",
}  # fmt: skip
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_NESTED = ("array<", "map<", "struct<")
_LONG_DECIMAL = re.compile(r"decimal\((?:1[6-9]|[23]\d),")
"""With more digits than a double, which MySQL's type JSON makes of it (MariaDB's is a text)."""
INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
TEXTS = {"varchar", "tinytext", "text", "mediumtext", "longtext"}
BYTES = {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
NARROW = {"char", "enum"}
"""They hold a string, but for some that `altered_texts` finds."""
_ANY_TEXT = {*TEXTS, *BYTES, "json"}
_HOLDS: tuple[tuple[str, set[str]], ...] = (
    ("boolean|tinyint|smallint", {*INTEGERS, "decimal", "float", "double", *_ANY_TEXT}),
    ("int", {*INTEGERS, "decimal", "double", *_ANY_TEXT}),
    (r"bigint|decimal\(\d+,0\)", {*INTEGERS, "decimal", *_ANY_TEXT}),
    ("decimal", {"decimal", *_ANY_TEXT}),
    ("float", {"float", "double", "decimal"}),
    ("double", {"double", "decimal"}),
    ("date", {"date", "datetime", "timestamp", *_ANY_TEXT}),
    ("timestamp", {"datetime", "timestamp", *_ANY_TEXT}),
    ("binary", BYTES),
    ("string", {*_ANY_TEXT, *NARROW}),
    ("", _ANY_TEXT),
)
"""What holds each Spark type. All others alter some values and do not warn: BINARY fills up, an
integer rounds, VARCHAR shortens a double to fit."""


_MEMBER = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True)
class TableColumn:
    """One column of a table as described by the server.

    `takes_bytes`: UTF-8 bytes can be loaded directly. A text column of another character set would
    read them as its own, and MySQL's type JSON accepts no bytes (MariaDB's is a text).
    `apart`: rows that are not given it meet no other in a unique index that has it: they get NULL
    or a number of their own. `data_type`: of DOUBLE(10,2) and FLOAT(8,2) with the digits, to which
    they round; `members`: of an ENUM.
    """

    name: str
    data_type: str
    takes_bytes: bool
    fraction_digits: int
    not_null: bool
    must_be_given: bool
    generated: bool
    apart: bool = False
    collation: str = ""
    members: tuple[str, ...] = ()

    def altered_texts(self, texts: pa.Array) -> pa.Array:
        """Return which texts a column of `NARROW` would alter without a warning: CHAR cuts spaces
        at the end, ENUM takes a text of another case, or a number, for a member."""
        if self.data_type == "enum":
            members = pc.is_in(texts, value_set=pa.array(self.members, texts.type))
            return pc.and_(pc.invert(members), texts.is_valid())
        return pc.fill_null(pc.ends_with(texts, " "), False)

    @property
    def is_exact(self) -> bool:
        """Whether values are one key only if every byte is the same."""
        return not self.collation or self.collation.endswith(("_nopad_bin", "_0900_bin"))


@dataclass(frozen=True)
class UniqueIndex:
    """A primary key or unique index. A part that is no whole column is none of its names."""

    name: str
    columns: tuple[str, ...]


def read_columns(connection: Any, database: str, table: str) -> list[TableColumn]:
    """Return the table's columns in order; none if there is no such table."""
    columns = server.rows(
        connection,
        "SELECT column_name, IF(data_type IN ('float', 'double') AND numeric_scale IS NOT NULL,"
        " column_type, data_type), column_type, character_set_name, datetime_precision, "
        "is_nullable, column_default, extra, collation_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (database, table),
    )
    null = "NULL" if "mariadb" in connection.get_server_info().lower() else None
    return [
        TableColumn(
            name,
            str(data_type).lower(),
            charset in (None, "utf8mb4") and str(data_type).lower() != "json",
            int(digits or 0),
            nullable == "NO",
            nullable == "NO" and default is None and "auto_increment" not in str(extra).lower(),
            "generated" in str(extra).lower() and "default_generated" not in str(extra).lower(),
            "auto_increment" in str(extra).lower()
            or (nullable == "YES" and default == null and "generated" not in str(extra).lower()),
            collation or "",
            tuple(one.replace("''", "'") for one in _MEMBER.findall(str(shown)))
            if data_type == "enum"
            else (),
        )
        for name, data_type, shown, charset, digits, nullable, default, extra, collation in columns
    ]


def read_engine(connection: Any, database: str, table: str) -> str:
    """Return the table's storage engine, ``a view``, or "" if there is no such table."""
    described = server.rows(
        connection,
        "SELECT table_type, engine FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s",
        (database, table),
    )
    if not described:
        return ""
    return "a view" if "VIEW" in str(described[0][0]) else str(described[0][1])


def read_unique_indexes(connection: Any, database: str, table: str) -> list[UniqueIndex]:
    """Return the table's unique indexes, the primary key among them."""
    columns: dict[str, list[str]] = {}
    for index, column, part in server.rows(
        connection,
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
        "LEFT JOIN information_schema.columns USING (table_schema, table_name, column_name) "
        "WHERE non_unique = 0 AND table_schema = %s AND table_name = %s "
        "AND COALESCE(generation_expression, '') <> 'ROW END' "  # of MariaDB, in each index
        "ORDER BY index_name, seq_in_index",
        (database, table),
    ):
        columns.setdefault(index, []).append(
            f"{column or 'an expression'}{f'({part})' if part else ''}"
        )
    return [UniqueIndex(name, tuple(parts)) for name, parts in columns.items()]


def read_checks(
    connection: Any, database: str, table: str, columns: Sequence[str], exempt: str
) -> list[str]:
    """Return the table's CHECK constraints on no other columns, as SQL; `exempt` is a condition of
    rows that they do not bind. On MariaDB alone: MySQL cannot read back its own form of them."""
    ((version,),) = server.rows(connection, "SELECT @@version")
    if "mariadb" not in str(version).lower():
        return []
    clauses = server.rows(
        connection,
        "SELECT constraint_name, check_clause FROM information_schema.check_constraints "
        "WHERE constraint_schema = %s AND table_name = %s",
        (database, table),
    )
    given = {name.lower() for name in columns}
    return [
        f"CONSTRAINT {server.quoted(name)} CHECK ({exempt} OR ({clause}))"
        for name, clause in clauses
        if _names(clause) <= given
    ]


def _names(clause: str) -> set[str]:
    return {name.replace("``", "`").lower() for name in _QUOTED.findall(clause)}


def create_statement(
    database: str, table: str, schema: Schema, keys: Sequence[str], version: str
) -> str:
    """Return the CREATE TABLE statement for a DataFrame of this shape."""
    collation = exact_collation(version)
    lines = [
        f"{server.quoted(c.name)} {column_type(c, c.name in keys, version)}"
        + (" NOT NULL" if c.name in keys else "")
        for c in schema
    ]
    if keys:
        lines.append(f"PRIMARY KEY ({', '.join(map(server.quoted, keys))})")
    return (
        f"CREATE TABLE IF NOT EXISTS {server.quoted(database, table)} ({', '.join(lines)}) "
        f"ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"
    )


def column_type(column: Column, key: bool, version: str) -> str:
    """Return the column type for a Spark type; that of a key tells all its values apart."""
    kind = column.type
    if kind.startswith(_NESTED):
        return "LONGTEXT" if _LONG_DECIMAL.search(kind) else "JSON"
    if kind.startswith("decimal"):
        return kind.upper()
    made = _TYPES.get(kind, "LONGTEXT")
    if not key or made not in ("LONGTEXT", "LONGBLOB"):
        return made
    collation = exact_collation(version)
    if made == "LONGBLOB" or collation == "utf8mb4_bin":
        return "VARBINARY(255)"
    return f"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE {collation}"


def exact_collation(version: str) -> str:
    """Return the collation that compares strings as Spark does: by every byte, trailing spaces
    included. MySQL before 8.0.17 has none for trailing spaces."""
    if "mariadb" in version.lower():
        return "utf8mb4_nopad_bin"
    major, minor, patch = version_of(version)
    return "utf8mb4_0900_bin" if (major, minor, patch) >= (8, 0, 17) else "utf8mb4_bin"


def version_of(version: str) -> tuple[int, int, int]:
    """Return ``10.11.6-MariaDB-log`` as (10, 11, 6)."""
    # MariaDB may put 5.5.5- in front, for old replicas.
    match = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def misfit(column: Column, target: TableColumn) -> str:
    """Return how the target column would alter the DataFrame's values, "" if not at all."""
    kind, into = column.type, target.data_type
    if target.generated:
        return "is generated by the server and cannot be written"
    held = next(types for pattern, types in _HOLDS if re.match(pattern, kind))
    if kind.startswith("timestamp") and "time" in into and target.fraction_digits < 6:
        return f"would round to {target.fraction_digits} digits of a second"
    if into == "json" and _LONG_DECIMAL.search(kind):
        return "would round decimals of more than 15 digits"
    return "" if into in held else "would alter values without a warning"
