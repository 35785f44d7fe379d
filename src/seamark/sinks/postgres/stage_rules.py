"""What a stage takes over from its target, to refuse a row before the decision instead of after it:
CHECKs, generated columns, the need of a partition, and the indexes that a row may be too long for,
or whose expressions fail on it. What depends on other rows or tables stays out (`met_late`).
"""

import re
from collections.abc import Sequence
from typing import Any

from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.postgres.table import Column, Table

_MEASURED = ("text", "varchar", "bpchar", "citext", "bytea")
_LONG_BYTES = 1000
"""A row with shorter texts fits in any index: the limit is 2,704 bytes, and numbers and times have
no more than the rest."""
_CHECKS = """
SELECT format('CONSTRAINT %%I', conname), pg_get_expr(conbin, conrelid), NULL, NULL
FROM pg_constraint
WHERE conrelid = to_regclass(%(table)s) AND contype = 'c' AND conkey <@ %(given)s::int2[]
AND pg_get_constraintdef(oid) NOT LIKE '%% NOT ENFORCED'
UNION ALL
SELECT NULL, NULL, CASE WHEN indexprs IS NULL AND indpred IS NULL THEN indkey::int2[]
ELSE '{}' END, indnkeyatts FROM pg_index JOIN pg_class i ON i.oid = indexrelid
WHERE indrelid = to_regclass(%(table)s) AND indisready
AND (i.relam = 403 OR indexprs IS NOT NULL OR indpred IS NOT NULL)
"""
"""The CHECKs on no other columns; and each B-tree's columns, none for an index of any kind that has
expressions or a condition. A B-tree's access method is 403."""
_PARTITIONS = """
WITH part AS (
  SELECT p.relid, p.parentrelid, p.isleaf, t.partdefid, t.partstrat = 'h' AND (
    SELECT sum(1 / substring(pg_get_expr(c.relpartbound, c.oid) FROM 'modulus ([0-9]+)')::float8)
    FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid WHERE h.inhparent = p.relid
  ) > 0.999999 AS whole
  FROM pg_partition_tree(to_regclass(%(table)s)) p
  LEFT JOIN pg_partitioned_table t ON t.partrelid = p.relid)
SELECT 'CONSTRAINT "a partition takes it"', coalesce(string_agg(
  coalesce(pg_get_partition_constraintdef(relid), 'true'), ' OR ' ORDER BY relid::oid DESC
) FILTER (WHERE whole OR isleaf AND NOT EXISTS (
  SELECT FROM part above WHERE above.whole AND above.relid = part.parentrelid)), 'false')
FROM part HAVING bool_or(partdefid = 0 AND NOT whole) AND NOT EXISTS (
  SELECT FROM pg_depend d JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.objid, d.objsubid)
  WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
  AND d.deptype = 'i' AND d.refobjid = d.objid AND d.objid IN (SELECT relid FROM part)
  AND a.attname <> ALL (%(names)s))
"""
"""Whether a partitioned table has a place for the row, if no other columns tell. The newest
partition comes first: most rows are for it. A `whole` table takes all rows, by their hashes."""
_GENERATED = """
SELECT name, value, is_asked_for FROM (
  SELECT a.attname::text AS name, pg_get_expr(d.adbin, d.adrelid) AS value,
    a.attgenerated = 's' OR a.attnotnull AS is_made, EXISTS (
      SELECT FROM pg_constraint
      WHERE conrelid = a.attrelid AND contype <> 'n' AND a.attnum = ANY (conkey)
    ) OR EXISTS (
      SELECT FROM pg_depend p JOIN pg_index i ON i.indexrelid = p.objid
      JOIN pg_class c ON c.oid = i.indexrelid
      WHERE p.classid = 'pg_class'::regclass AND p.refclassid = p.classid
      AND (p.refobjid, p.refobjsubid) = (a.attrelid, a.attnum)
      AND (c.relam = 403 OR i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)) AS is_asked_for
  FROM pg_attribute a JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
  WHERE a.attrelid = to_regclass(%(table)s) AND a.attgenerated <> '' AND NOT EXISTS (
    SELECT FROM pg_depend p WHERE (p.refclassid, p.refobjid) = ('pg_class'::regclass, a.attrelid)
    AND p.refobjsubid <> a.attnum AND p.refobjsubid <> ALL (%(given)s::int4[])
    AND ((p.classid, p.objid) = ('pg_attrdef'::regclass, d.oid)
      OR (p.classid, p.objid, p.objsubid) = ('pg_class'::regclass, a.attrelid, a.attnum::int4)))
) generated WHERE is_made OR is_asked_for
"""
"""The generated columns of which the given ones tell the value, each with whether a constraint or
an index asks for it: then the stage has it too. (A text too long for another one is cut here.)"""
_INDEXES = """
WITH field AS (
  SELECT i.indexrelid, pg_get_expr(i.indpred, i.indrelid) AS condition,
    pg_get_indexdef(i.indexrelid) AS made, pg_get_indexdef(i.indexrelid, a.attnum, false) AS sql,
    t.typlen > 0 OR t.typname = 'numeric' OR c.relam <> 403 AS short,
    t.typcategory = 'S' OR t.typname = 'bytea' AS measured
  FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indexrelid
  JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_type t ON t.oid = a.atttypid
  WHERE i.indrelid = to_regclass(%(table)s) AND i.indisready
  AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
  AND i.indkey::int2[] <@ (%(given)s::int2[] || 0::int2) AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE (d.classid, d.objid) = ('pg_class'::regclass, i.indexrelid)
    AND (d.refclassid, d.refobjid) = ('pg_class'::regclass, i.indrelid)
    AND d.refobjsubid <> 0 AND d.refobjsubid <> ALL (%(given)s::int4[])))
SELECT made, condition, string_agg(CASE WHEN short THEN format('num_nulls(%%s)', sql)
  WHEN measured THEN format('octet_length(coalesce(%%s, ''''))', sql) ELSE '{long}' END, ' + ')
FROM field WHERE made NOT LIKE '%%.*%%' GROUP BY indexrelid, made, condition
""".replace("{long}", str(_LONG_BYTES + 1))
"""The indexes with expressions or a condition, and what tells whether a row may be too long."""
_MADE = re.compile(
    r"CREATE (?:UNIQUE )?INDEX {0} ON (?:ONLY )?{0}(?:\.{0})? USING (.*)".replace(
        "{0}", r'(?:"(?:[^"]|"")*"|[^". ]+)'
    ),
    re.DOTALL,
)
_MET_LATE = """
SELECT what FROM (
  SELECT format('unique or exclusion index %%I', c.relname) AS what, ARRAY(
    SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[:i.indnkeyatts - 1])) AS names
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  WHERE i.indrelid = to_regclass(%(table)s) AND (i.indisunique OR i.indisexclusion)
  UNION ALL
  SELECT format('foreign key %%I', conname), '{}' FROM pg_constraint
  WHERE conrelid = to_regclass(%(table)s) AND contype = 'f'
  UNION ALL
  SELECT format('trigger %%I', tgname), '{}' FROM pg_trigger
  WHERE tgrelid = to_regclass(%(table)s) AND NOT tgisinternal AND tgenabled <> 'D'
) late
WHERE names <@ (%(names)s || ARRAY(
  SELECT attname::text FROM pg_attribute
  WHERE attrelid = to_regclass(%(table)s) AND attgenerated <> ''
)) AND (names = '{}' OR NOT names @> %(keys)s OR %(keys)s = '{}'
  OR NOT names <@ %(keys)s) ORDER BY what
"""


def rules(
    connection: Any, table: Table, columns: Sequence[Column], stage: str, exempt: str
) -> tuple[list[str], list[str]]:
    """Return what a stage with these columns has besides, generated columns and constraints, and
    statements that make its indexes. `exempt` is a condition of rows that they do not bind."""
    names = [column.name for column in columns]
    given = {"table": table.sql, "given": [column.number for column in columns], "names": names}
    own, checks, indexes, others = [], [], [], False
    if any(column.computed for column in table.columns):
        for name, value, is_asked_for in connection.execute(_GENERATED, given).fetchall():
            column = table.find(name)
            assert column is not None
            type_ = column.type
            if is_asked_for:
                columns = [*columns, column]
                own.append(
                    f"{quoted(name)} {type_.base or type_.shown}{type_.collation} "
                    f"GENERATED ALWAYS AS (CASE WHEN NOT ({exempt}) THEN {value} END) STORED"
                )
                value = quoted(name)
            nulls = f"num_nulls(({value})::{type_.shown}) <= {int(not column.not_null)}"
            checks.append((f'CONSTRAINT "generated {column.number}"', nulls))
    given["given"] = [column.number for column in columns]
    for name, condition, numbers, keys in connection.execute(_CHECKS, given).fetchall():
        if numbers is None:
            checks.append((name, condition))
        elif numbers:
            parts = [column for number in numbers for column in columns if column.number == number]
            if len(parts) == len(numbers) and (length := _length(parts)):
                listed = [quoted(column.name) for column in parts]
                included = f" INCLUDE ({', '.join(listed[keys:])})" if listed[keys:] else ""
                like = f"btree ({', '.join(listed[:keys])}){included}"
                indexes.append((like, "true", length))
        else:
            others = True
    if table.kind == "p":
        checks += connection.execute(_PARTITIONS, given).fetchall()
    for made, condition, length in connection.execute(_INDEXES, given) if others else ():
        match = _MADE.fullmatch(made)
        assert match is not None, made
        like = match[1].removesuffix(f" WHERE {condition}")
        indexes.append((like, condition or "true", length))
    return (
        own + [f"{name} CHECK ({exempt} OR {condition})" for name, condition in checks],
        [  # expressions are tried on each row; a row is in it that may be too long for it
            f"CREATE INDEX ON {stage} USING {like} WHERE NOT ({exempt}) AND ({condition}) "
            f"AND {length} > {_LONG_BYTES}"
            for like, condition, length in indexes
        ],
    )


def _length(columns: Sequence[Column]) -> str:
    """Return SQL of how long a row with these columns is in an index, "" if that is bounded."""
    kinds = [(c.type.name, c.type.element is not None, quoted(c.name)) for c in columns]
    texts = [f"octet_length(coalesce({sql}, ''))" for name, _, sql in kinds if name in _MEASURED]
    if any(is_array or name == "jsonb" for name, is_array, _ in kinds):
        texts.append(str(_LONG_BYTES + 1))
    return " + ".join(texts)


def met_late(
    connection: Any, table: Table, names: Sequence[str], keys: Sequence[str]
) -> Sequence[str]:
    """Return what refuses a row for other rows, tables or reasons of its own: a stage cannot."""
    given = {"table": table.sql, "names": list(names), "keys": list(keys)}
    return [what for (what,) in connection.execute(_MET_LATE, given).fetchall()]
