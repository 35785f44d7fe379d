"""The source contract: a description of the stream that the runtime has Spark read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class StreamReader:
    """What goes into ``spark.readStream``: format, options and, if given, the schema as DDL."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None


class Source(Protocol):
    """Configuration of a source: validated when built, holding no open resource."""

    @property
    def replayable(self) -> bool:
        """Whether the rows between two recorded offsets can be read again after a failure."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether the source ends by itself; a job of bounded sources alone ends with them."""
        ...

    def describe(self) -> str:
        """Return one short line for people, e.g. ``Kafka topics clicks``; never a secret."""
        ...

    def reader(self) -> StreamReader:
        """Return what Spark is to read. Called once, when the source is added to a job."""
        ...
