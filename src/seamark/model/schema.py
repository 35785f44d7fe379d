"""The shape of a DataFrame without Spark, as shown to a sink when the job is built."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its name and Spark's `simpleString` type, e.g. ``struct<start:timestamp>``."""

    name: str
    type: str


Schema = tuple[Column, ...]


def quoted(*names: str) -> str:
    """Return a name as an identifier of Spark's SQL and MySQL's, whatever characters it holds:
    ``quoted("db", "t")`` is ``db.t``."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
