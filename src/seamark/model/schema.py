"""The shape of a DataFrame without Spark, as shown to a sink when the job is built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its name and Spark's `simpleString` type, e.g. ``struct<start:timestamp>``."""

    name: str
    type: str


Schema = tuple[Column, ...]


def quoted(name: str) -> str:
    """Return `name` as a Spark SQL identifier, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"
