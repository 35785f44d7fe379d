"""The tables: the target as the database describes it, the stage, the ledger; and every statement
on them, made of SQLAlchemy's constructs alone.

The ledger, `_seamark_sql_ledger`, holds one row per ended transaction. ``committed`` is written in
the transaction that moves the rows, so it proves that they are visible. ``aborted`` is a tombstone:
it makes a late commit fail. The primary key lets only one of them stand, and so it is the lock: of
two drivers that end one transaction the second waits or is refused, and then reads the outcome.

A stage is one table for all tasks and epochs of a target of one shape; its name holds a digest of
the shape. So no attempt needs DDL, and a target that was altered gets another stage.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql

from seamark.contracts.attempt_name import digest
from seamark.contracts.read_back import DELETE
from seamark.model.schema import Schema
from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.internal.outcomes import LEDGER_EPOCHS, Fate
from seamark.sinks.internal.table_sink import named
from seamark.sinks.sql import duckdb
from seamark.sinks.sql.committable import HANDLE, LONGEST_HANDLE, ROW, SqlCommittable
from seamark.sinks.sql.database import Session, failures, refuses_row
from seamark.sinks.sql.types import Form, form_of, new_type

_TRANSACTIONAL: dict[str, Any] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}
"""A server's default may be an engine without transactions."""
LEDGER = "_seamark_sql_ledger"
STAGE_PREFIX = "_seamark_stage_"
_STAGE_NAME = re.compile(rf"{STAGE_PREFIX}[0-9a-f]{{12}}", re.IGNORECASE)
"""`PostgresSink` and `MySQLSink` have stages of longer names in the same schema."""
_BY_ROW_VALUES = ("postgresql", "mysql", "sqlite", "oracle", "duckdb")
"""Dialects that know ``(a, b) IN (SELECT …)``; they find it quicker than EXISTS."""
_LOOSE_KEYS = {
    "postgresql": sa.text(
        "SELECT a.attname FROM pg_attribute a JOIN pg_class t ON t.oid = a.attrelid "
        "JOIN pg_namespace n ON n.oid = t.relnamespace WHERE t.relname = :name "
        "AND (n.nspname = :place OR :place = '' AND pg_table_is_visible(t.oid)) AND EXISTS "
        "(SELECT FROM pg_collation c LEFT JOIN pg_index i ON i.indrelid = t.oid AND i.indisunique "
        "AND a.attnum = ANY (i.indkey) WHERE NOT c.collisdeterministic "
        "AND (c.oid = a.attcollation OR c.oid = ANY (i.indcollation)))"
    ),
    "mysql": sa.text(  # of an index on the beginnings of texts
        "SELECT column_name FROM information_schema.statistics WHERE table_name = :name "
        "AND table_schema = coalesce(nullif(:place, ''), database()) "
        "AND non_unique = 0 AND sub_part IS NOT NULL"
    ),
    "sqlite": sa.text(
        "SELECT c.name FROM pragma_index_list(:name, coalesce(nullif(:place, ''), 'main')) AS i, "
        "pragma_index_xinfo(i.name, coalesce(nullif(:place, ''), 'main')) AS c "
        "WHERE i.\"unique\" AND c.key AND upper(c.coll) <> 'BINARY'"
    ),
}
"""Queries for the columns that take two texts for one key, where the type does not tell."""
_VIRTUAL = sa.text(
    "SELECT name FROM sqlite_master "
    "WHERE lower(name) = lower(:name) AND sql LIKE 'CREATE VIRTUAL %'"
)
_ENCODING = sa.text("PRAGMA encoding")
_AT_ONCE = 500
"""Handles in one query: Oracle takes 1,000 in a list, and SQL Server 2,100 in all."""


class EndedMeanwhileError(Exception):
    """Another driver ends the same transaction at this moment: its outcome is the ledger's."""


@dataclass(frozen=True)
class TargetColumn:
    """A column of the target. `filled`: a row without it gets a value by itself. `computed`: a row
    must not give it a value."""

    name: str
    type: Any
    form: Form
    not_null: bool
    filled: bool
    computed: bool


@dataclass(frozen=True)
class Target:
    """A table as the database describes it; `place` is its schema, "" for the connection's own.
    `keys` are the columns of each of its unique indexes. `engine`, "" elsewhere, and `texts`, the
    character set and the collation of columns that have none of their own, are MySQL's."""

    place: str
    name: str
    columns: tuple[TargetColumn, ...]
    keys: tuple[frozenset[str], ...] = ()
    is_table: bool = True
    engine: str = ""
    texts: tuple[str, ...] = ()

    def find(self, name: str) -> TargetColumn | None:
        """See `named`."""
        return named(self.columns, name)


def describe(
    connection: Any, dialect: str, place: str, name: str, *, keys: bool = False
) -> Target | None:
    """Return the table; None if it does not exist. `keys`: with its unique indexes, and whether it
    is a table at all."""
    look, schema = sa.inspect(connection), place or None
    try:
        if dialect == "duckdb":
            listed = duckdb.columns(connection, name, schema)
        else:
            listed = look.get_columns(name, schema)
    except sa.exc.NoSuchTableError:
        listed = []
    if not listed:
        return None
    columns = tuple(
        TargetColumn(
            c["name"],
            # Firebird's dialect sends an INTEGER to a BIGINT that it has found itself.
            sa.BigInteger() if (dialect, str(c["type"])) == ("firebird", "BIGINT") else c["type"],
            form_of(c["type"], dialect),
            not c["nullable"],
            c.get("default") is not None or c.get("autoincrement") is True or "identity" in c,
            "computed" in c,
        )
        for c in listed
    )
    if dialect == "sqlite" and connection.execute(_ENCODING).scalar() != "UTF-8":
        columns = tuple(replace(c, form=replace(c.form, utf16=True)) for c in columns)
    options = {}
    if dialect == "mysql":  # each name has the dialect in front
        listed = look.get_table_options(name, schema).items()
        options = {option.partition("_")[2]: str(value) for option, value in listed}
    texts = tuple(options.get(option, "") for option in ("default charset", "collate"))
    engine = options.get("engine", "")
    if not keys:
        return Target(place, name, columns, engine=engine, texts=texts)
    loose = _loose_keys(connection, dialect, place, name)
    columns = tuple(
        replace(c, form=replace(c.form, exact=False)) if c.name in loose else c for c in columns
    )
    if dialect == "duckdb":
        unique = duckdb.keys(connection, name, schema)
    else:
        unique = [look.get_pk_constraint(name, schema)["constrained_columns"]]
        unique += [one["column_names"] for one in look.get_unique_constraints(name, schema)]
        unique += [
            one["column_names"]
            for one in look.get_indexes(name, schema)
            if one["unique"] and not any("where" in o for o in one.get("dialect_options", ()))
        ]
    known = tuple(frozenset(names) for names in unique if names and None not in names)
    if dialect == "duckdb":
        is_table = duckdb.is_table(connection, name, schema)
    else:
        is_table = name in look.get_table_names(schema)
    if dialect == "sqlite" and connection.execute(_VIRTUAL, {"name": name}).first():
        is_table = False  # an R-tree keeps 32 bits of a double
    return Target(place, name, columns, known, is_table, engine, texts)


def _loose_keys(connection: Any, dialect: str, place: str, name: str) -> set[str]:
    if dialect == "duckdb":
        return duckdb.loose_texts(connection, name, place or None)
    query = _LOOSE_KEYS.get(dialect)
    rows = [] if query is None else connection.execute(query, {"name": name, "place": place})
    return {column for (column,) in rows}


def new_target(place: str, name: str, schema: Schema, keys: Sequence[str]) -> Any:
    """Return a table for the DataFrame's columns; `keys` become its primary key."""
    columns = (
        sa.Column(
            c.name, new_type(c.type, key=c.name in keys), primary_key=c.name in keys,
            autoincrement=False,
        )
        for c in schema
    )  # fmt: skip
    return sa.Table(name, sa.MetaData(), *columns, schema=place or None, **_TRANSACTIONAL)


def ledger_table(place: str) -> Any:
    """Return the ledger of a schema."""
    return sa.Table(
        LEDGER,
        sa.MetaData(),
        sa.Column("handle", _exact(LONGEST_HANDLE), primary_key=True),
        sa.Column("owner", _exact(90), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("row_count", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.String(9), nullable=False),
        sa.Index(f"{LEDGER}_epoch", "owner", "epoch"),
        schema=place or None,
        **_TRANSACTIONAL,
    )


def stage_table(target: Target, columns: Sequence[TargetColumn], *, with_op: bool) -> Any:
    """Return the stage for rows of these columns. Where rows may be deletions, a column may be null
    that is not null in the target: a row to delete needs its keys alone."""
    made = [
        sa.Column(HANDLE, _exact(LONGEST_HANDLE), primary_key=True),
        sa.Column(ROW, sa.BigInteger, primary_key=True, autoincrement=False),
    ]
    if with_op:
        made.append(sa.Column(STAGED_OP, sa.String(6), nullable=False))
    made += [sa.Column(c.name, c.type, nullable=with_op or not c.not_null) for c in columns]
    of = (target.name, with_op, *target.texts)
    shape = repr([of, *((c.name, repr(c.type), c.not_null) for c in columns)])
    name = STAGE_PREFIX + digest(shape, 12)
    # A text that the target takes must find room in the stage, and no other text.
    texts = {
        f"{dialect}_{option}": value
        for dialect in ("mysql", "mariadb")
        for option, value in zip(("default_charset", "collate"), target.texts, strict=False)
        if value
    }
    schema = target.place or None
    return sa.Table(name, sa.MetaData(), *made, schema=schema, **_TRANSACTIONAL, **texts)


def _exact(length: int) -> Any:
    """Return a type for names of ASCII: of two jobs whose names differ in case alone, none may take
    the other's ledger for its own."""
    made = sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
    )
    return made.with_variant(mssql.VARCHAR(length, collation="Latin1_General_BIN2"), "mssql")


def create(session: Session, table: Any) -> None:
    """Create a table, if it is missing."""
    try:
        session.run(lambda connection: table.create(connection, checkfirst=True), create=True)
    except failures():  # another task or job may have made it at the same time
        if not session.run(lambda connection: exists(connection, table.schema or "", table.name)):
            raise


def exists(connection: Any, place: str, name: str) -> bool:
    """Return whether there is a table of this name."""
    if connection.dialect.name == "duckdb":
        return duckdb.is_table(connection, name, place or None)
    return bool(sa.inspect(connection).has_table(name, place or None))


# --- the ledger


def outcomes(connection: Any, committables: Iterable[SqlCommittable]) -> dict[str, Fate]:
    """Return the fate of each transaction that has ended, by its handle."""
    handles: dict[str, list[str]] = {}
    for c in committables:
        handles.setdefault(c.place, []).append(c.handle)
    fates = {}
    for place, listed in handles.items():
        ledger = ledger_table(place).c
        for start in range(0, len(listed), _AT_ONCE):
            some = ledger.handle.in_(listed[start : start + _AT_ONCE])
            query = sa.select(ledger.handle, ledger.outcome).where(some)
            fates.update({handle: Fate(outcome) for handle, outcome in connection.execute(query)})
    return fates


def record(connection: Any, c: SqlCommittable, how: Fate) -> None:
    """Write the transaction's ledger row. Raises EndedMeanwhileError if there is one."""
    row = {"handle": c.handle, "owner": c.owner, "epoch": c.epoch, "row_count": c.rows}
    try:
        connection.execute(sa.insert(ledger_table(c.place)).values(**row, outcome=how.value))
    except sa.exc.DBAPIError as error:
        if refuses_row(error):
            raise EndedMeanwhileError(c.handle) from None
        raise


def forget(connection: Any, c: SqlCommittable) -> None:
    """Delete a transaction's ledger row."""
    ledger = ledger_table(c.place)
    connection.execute(sa.delete(ledger).where(ledger.c.handle == c.handle))


def newest_epoch(connection: Any, c: SqlCommittable) -> int | None:
    """Return the highest epoch of the committable's job and sink in the ledger, if there is one."""
    ledger = ledger_table(c.place).c
    newest = connection.execute(
        sa.select(sa.func.max(ledger.epoch)).where(ledger.owner == c.owner)
    ).scalar()
    return None if newest is None else int(newest)


def prune(connection: Any, committables: Iterable[SqlCommittable]) -> None:
    """Delete rows no driver can ask for any more; never the newest."""
    newest: dict[tuple[str, str], int] = {}
    for c in committables:
        newest[c.place, c.owner] = max(c.epoch, newest.get((c.place, c.owner), 0))
    for (place, owner), epoch in newest.items():
        ledger = ledger_table(place)
        old = (ledger.c.owner == owner) & (ledger.c.epoch < epoch - LEDGER_EPOCHS)
        connection.execute(sa.delete(ledger).where(old))


# --- the stage


def has_stage(connection: Any, c: SqlCommittable) -> bool:
    """Return whether a transaction's stage is there. Raises FileNotFoundError for a file's, while
    the whole staging area is away."""
    if c.file is None:
        return exists(connection, c.place, c.stage)
    c.file.parent.stat()
    return c.file.exists()


def staged_rows(connection: Any, c: SqlCommittable) -> int | None:
    """Return how many rows a stage has of a transaction; None without the stage."""
    if not has_stage(connection, c):
        return None
    rows = _stage(c)
    query = sa.select(sa.func.count()).select_from(rows).where(rows.c[HANDLE] == c.handle)
    return int(connection.execute(query).scalar())


def discard(connection: Any, c: SqlCommittable) -> None:
    """Delete a transaction's rows from its stage; a file stays, for `discard_files`."""
    if c.file is not None:
        return
    rows = _stage(c)
    connection.execute(sa.delete(rows).where(rows.c[HANDLE] == c.handle))


def discard_files(committables: Iterable[SqlCommittable]) -> None:
    """Delete the files of transactions that have ended: a file is in no transaction. Best effort:
    the next listing finds leftovers."""
    for c in committables:
        if c.file is not None:
            with contextlib.suppress(OSError):
                c.file.unlink()


def staged_handles(connection: Any, place: str, owner: str) -> Iterator[tuple[str, str]]:
    """Yield the stage and the handle of all rows of one job's sink, in every stage of a schema."""
    names = sa.inspect(connection).get_table_names(place or None)
    for name in sorted(filter(_STAGE_NAME.fullmatch, names)):
        handle = sa.table(name, sa.column(HANDLE), schema=place or None).c[HANDLE]
        query = sa.select(handle).distinct().where(handle.startswith(f"{owner}/", autoescape=True))
        for (staged,) in connection.execute(query).fetchall():
            if staged.rpartition("/")[0] == owner:  # LIKE may know no case
                yield name, staged


def move(connection: Any, c: SqlCommittable) -> None:
    """Put a transaction's rows into the target: appended or, with keys, in place of the rows of
    their keys, of each key the last one.

    An upsert deletes the rows of all staged keys and inserts the new ones: every dialect knows
    these statements, and MERGE each in its own words. So a row is made anew, not changed.
    """
    rows = _stage(c)
    mine = rows.c[HANDLE] == c.handle
    target = sa.table(c.target, *map(sa.column, c.columns), schema=c.place or None)
    chosen = mine
    if c.keys:
        dialect = connection.dialect.name.replace("mariadb", "mysql")
        if len(c.keys) == 1 or dialect in _BY_ROW_VALUES:
            keys: list[Any] = [target.c[key] for key in c.keys]
            if dialect == "sqlite":  # as its index compares; a column may have NOCASE besides
                keys = [sa.collate(key, "BINARY") for key in keys]
            named = keys[0] if len(keys) == 1 else sa.tuple_(*keys)
            replaced = named.in_(sa.select(*(rows.c[key] for key in c.keys)).where(mine))
        else:
            same = [rows.c[key] == target.c[key] for key in c.keys]
            replaced = sa.exists().where(mine, *same)
        connection.execute(sa.delete(target).where(replaced))
        also = rows.alias("_seamark_newest")
        newest = (
            sa.select(sa.func.max(also.c[ROW]))
            .where(also.c[HANDLE] == c.handle)
            .group_by(*(also.c[key] for key in c.keys))
        )
        chosen = chosen & rows.c[ROW].in_(newest)
        if c.op:
            chosen = chosen & (rows.c[c.op] != DELETE)
    taken = sa.select(*(rows.c[name] for name in c.columns)).where(chosen).order_by(rows.c[ROW])
    connection.execute(sa.insert(target).from_select(list(c.columns), taken))


def _stage(c: SqlCommittable) -> Any:
    own = [HANDLE, ROW, *([c.op] if c.op else [])]
    if c.file is not None:
        return duckdb.rows(c.stage, [*own, *c.columns])
    return sa.table(c.stage, *map(sa.column, [*own, *c.columns]), schema=c.place or None)
