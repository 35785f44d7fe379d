"""The target table: reads its columns from the catalog, checks the DataFrame's, creates it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import WriteRefusedError
from seamark.model.schema import Schema
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.table_sink import named
from seamark.sinks.postgres.types import ColumnType, allowed, fits, new_column

_DESCRIBE = """
SELECT n.nspname, c.relname, c.relkind::text, a.attnum, a.attname,
       format_type(a.atttypid, a.atttypmod), CASE WHEN t.typtype = 'd' AND t.typnotnull
       THEN format_type(t.typbasetype, t.typtypmod) ELSE '' END,
       CASE WHEN a.attcollation IN (0, 100) THEN '' ELSE ' COLLATE ' || a.attcollation::regcollation
       END,
       CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END,
       b.oid::int8, CASE b.typtype WHEN 'e' THEN 'enum' ELSE b.typname END,
       e.oid::int8, CASE e.typtype WHEN 'e' THEN 'enum' ELSE e.typname END,
       format_type(e.oid, NULL), a.attnotnull, a.atthasdef OR a.attidentity <> '',
       a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
WHERE c.oid = to_regclass(%s) ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text), bool_and(i.indimmediate AND NOT EXISTS (
  SELECT FROM pg_collation c WHERE NOT c.collisdeterministic
  AND (c.oid = a.attcollation OR c.oid = ANY (i.indcollation)))) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_VOLATILE = """
SELECT relkind = 'f', oid::regclass::text FROM pg_class
WHERE (relpersistence = 'u' OR relkind = 'f')
AND (oid = to_regclass(%s) OR oid IN (SELECT relid FROM pg_partition_tree(to_regclass(%s))))
"""
_CHILDREN = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(%s)"


@dataclass(frozen=True)
class Column:
    """A column of the target. `filled`: a row without it gets a value by itself. `computed`: a row
    must not give it a value."""

    name: str
    number: int
    type: ColumnType
    not_null: bool
    filled: bool
    computed: bool


@dataclass(frozen=True)
class Table:
    """A table as described by the catalog. `kind` is pg_class.relkind."""

    schema: str
    name: str
    kind: str
    columns: tuple[Column, ...]

    @property
    def sql(self) -> str:
        """Its quoted, qualified name."""
        return quoted(self.schema, self.name)

    def find(self, name: str) -> Column | None:
        """See `named`."""
        return named(self.columns, name)


def describe(connection: Any, sql_name: str) -> Table | None:
    """Return the table with this quoted name; None if it does not exist or has no columns."""
    rows = connection.execute(_DESCRIBE, [sql_name]).fetchall()
    if not rows:
        return None
    columns = []
    for row in rows:
        number, name, shown, base, collation, modifier, oid, type_, *others = row[3:]
        e_oid, e_type, e_shown, *flags = others
        element = None if e_oid is None else ColumnType(e_type, e_oid, e_shown, modifier)
        column_type = ColumnType(type_, oid, shown, modifier, element, base, collation)
        columns.append(Column(name, number, column_type, *flags))
    schema, table, relkind = rows[0][:3]
    return Table(schema, table, relkind, tuple(columns))


def volatile(connection: Any, table: Table) -> list[tuple[bool, str]]:
    """Return what of the table and its partitions keeps no commit: on another server (True), or
    emptied by a crash (False)."""
    return connection.execute(_VOLATILE, [table.sql, table.sql]).fetchall()  # type: ignore[no-any-return]


def volatile_parts(connection: Any, table: Table) -> str:
    """Return `volatile` as a text; "" for nothing."""
    parts = ", ".join(name for _, name in volatile(connection, table))
    return parts and f"{parts} is a foreign table or UNLOGGED, and keeps no commit"


def create(connection: Any, sql_name: str, schema: Schema, keys: Sequence[str]) -> None:
    """Create a missing table with the DataFrame's columns; `keys` become its primary key."""
    parts = [f"{quoted(column.name)} {new_column(column.type)}" for column in schema]
    if keys:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {sql_name} ({', '.join(parts)})")


def targets(table: Table, rows: Schema) -> list[Column]:
    """Return the target's columns for the batch's. Raises WriteRefusedError if one is missing, or
    would alter values: the table was altered since the start."""
    columns = []
    for given in rows:
        column = table.find(given.name)
        if column is None:
            raise WriteRefusedError(
                f"PostgreSQL table {table.sql} has no column {given.name!r}; it had one when the "
                "job started. Add it again, and start the job again"
            )
        if not fits(given.type, column.type):
            raise WriteRefusedError(
                f"PostgreSQL table {table.sql} was altered while the job ran: column "
                f"{column.name!r} has type {column.type.shown} and the rows' {given.type}, which "
                f"goes into {allowed(given.type)}. Alter it back, or CAST the rows, and start the "
                "job again"
            )
        columns.append(column)
    return columns


def misfit(connection: Any, table: Table, schema: Schema, keys: Sequence[str]) -> str:
    """Return every reason why rows of this shape do not fit the table; "" if they do."""
    if table.kind not in ("r", "p"):
        return f"{table.sql} is no table (relkind {table.kind!r})"
    wrong = []
    targets = {column.name: table.find(column.name) for column in schema}
    for column in schema:
        target = targets[column.name]
        if target is None:
            present = ", ".join(c.name for c in table.columns)
            wrong.append(
                f"it has no column {column.name!r} (it has {present}): add it, "
                f"e.g. ALTER TABLE {table.sql} ADD COLUMN {quoted(column.name)} "
                f"{new_column(column.type)}, or drop it from the DataFrame"
            )
        elif target.computed:
            wrong.append(
                f"column {target.name!r} is computed by the table: drop it from the DataFrame"
            )
        elif not fits(column.type, target.type):
            wrong.append(
                f"column {target.name!r} has type {target.type.shown} and the DataFrame's "
                f"{column.type}, which goes into {allowed(column.type)}: CAST it in the DataFrame, "
                "or alter the column"
            )
    given = {column for column in targets.values() if column is not None}
    for target in table.columns if schema else ():
        if target not in given and target.not_null and not target.filled:
            wrong.append(
                f"column {target.name!r} is NOT NULL without a default, and the DataFrame lacks "
                "it: add it, or give the column a default"
            )
    wrong += key_misfits(connection, table, schema, keys)
    return f"table {table.sql}: {'; '.join(wrong)}" if wrong else ""


def key_misfits(connection: Any, table: Table, schema: Schema, keys: Sequence[str]) -> list[str]:
    """Return why rows cannot be found by these keys; nothing if they can, or there are none."""
    if not keys:
        return []
    names = {column.name for column in schema}
    if schema and (missing := [key for key in keys if key not in names]):
        return [f"key {missing[0]!r} is no column of the DataFrame: change keys, or select it"]
    columns = [table.find(key) for key in keys]
    wanted = {c.name: (c.type.element or c.type).name for c in columns if c is not None}
    indexes = connection.execute(_UNIQUE, [table.sql]).fetchall()
    # ON CONFLICT goes by all of them.
    exact = [fit for names, fit in indexes if set(names) == wanted.keys()]
    shown = ", ".join(map(quoted, keys))
    if not any(exact) or "citext" in wanted.values():
        return [
            f"no unique index that compares every byte is on exactly the keys ({shown}), which "
            f"mode='upsert' needs: ALTER TABLE {table.sql} ADD UNIQUE ({shown}), of columns "
            "without citext and nondeterministic collations, not DEFERRABLE"
        ]
    if table.kind == "r" and (
        children := connection.execute(_CHILDREN, [table.sql]).fetchall()
    ):  # those of a partitioned table share its indexes
        return [
            f"{table.sql} has children, in which an older row of a key would stay: move their "
            f"rows into it and ALTER TABLE {children[0][0]} NO INHERIT {table.sql}, or take "
            "mode='staged'"
        ]
    if not all(exact):
        return [
            f"a second unique index on the keys ({shown}) is DEFERRABLE, or takes different keys "
            "for one by a nondeterministic collation: drop it"
        ]
    return []
