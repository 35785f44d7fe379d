"""The source contract: a description of the stream that the runtime has Spark read, and what a
source may do besides (`CommitsOffsets`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


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


class OffsetCommitter(Protocol):
    """Tells a source's own system how far the job's completed checkpoints have read it, for the
    tools of that system. Nothing is ever read back: a job goes on from its checkpoint.

    Called from one thread of the driver's, off the path of epochs. It may block for some tens of
    seconds, and raise what it likes: the job warns and goes on.
    """

    def commit(self, end_offset: Any) -> None:
        """Commit the end of the newest completed checkpoint: the source's entry in Spark's offset
        log, as JSON gives it. Called after each one, at most once a second, with the newest."""
        ...

    def close(self) -> None:
        """Called once, at the run's end."""
        ...


@runtime_checkable
class CommitsOffsets(Protocol):
    """An optional part of a source: its system can be told what was read."""

    def create_offset_committer(self, jvm: Any) -> OffsetCommitter | None:
        """Return a committer, or None if nothing is to be told. `jvm` is Spark's, by py4j, where
        Spark's own client of the system is. Called once a run, in the thread that calls it."""
        ...
