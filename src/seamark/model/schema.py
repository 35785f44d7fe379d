"""The shape of a DataFrame without Spark, as shown to a sink when the job is built."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its name and Spark's `simpleString` type, e.g. ``struct<start:timestamp>``."""

    name: str
    type: str


Schema = tuple[Column, ...]


def type_parts(kind: str) -> tuple[str, list[str]]:
    """Return a type's name, and the types in its angle brackets, of a struct ``name:type`` each."""
    name, _, inside = kind.partition("<")
    inside = inside[:-1]
    parts, depth, start = [], 0, 0
    for at, character in enumerate(inside):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(inside[start:at])
            start = at + 1
    return name, [*parts, inside[start:]] if inside else []


def quoted(*names: str) -> str:
    """Return a name as an identifier of Spark's SQL and MySQL's, whatever characters it holds:
    ``quoted("db", "t")`` is ``db.t``."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
