"""The source contract: describes a stream for Spark to read. Optional parts below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from seamark.model.findings import Finding


@dataclass(frozen=True)
class StreamReader:
    """The arguments of ``spark.readStream``: format, options and, if given, the schema, as
    DDL or a `StructType`."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: Any = None


class Source(Protocol):
    """Configuration of a source: validated when built, holding no open resource."""

    @property
    def replayable(self) -> bool:
        """Whether the rows between two recorded offsets can be read again after a failure."""

    @property
    def bounded(self) -> bool:
        """Whether the source ends by itself; a job of bounded sources alone ends with them."""

    def describe(self) -> str:
        """Return one short line for people, e.g. ``Kafka topics clicks``; never a secret."""

    def reader(self) -> StreamReader:
        """Return the stream for Spark to read. Called once, when the source is added to a job."""


class OffsetCommitter(Protocol):
    """Tells a source's own system the position of the job's completed checkpoints, for its tools.

    Nothing is ever read back: a job goes on from its checkpoint. Called from one thread of the
    driver, off the path of epochs. It may block for some tens of seconds and raise any exception:
    the job warns and goes on.
    """

    def commit(self, end_offset: Any) -> None:
        """Commit the end of the newest completed checkpoint.

        `end_offset` is the source's entry in Spark's offset log, as parsed JSON. Called after each
        checkpoint, at most once a second, with the newest.
        """

    def close(self) -> None:
        """Called once, at the run's end."""


class RowDecoder(Protocol):
    """Makes columns of the bytes in a stream's column `value`; picklable. Called in tasks."""

    @property
    def value_type(self) -> pa.DataType:
        """The type of the column `value` behind it."""

    @property
    def keeps_unreadable(self) -> bool:
        """Whether an unreadable row stays, with a further column `UNREADABLE`."""

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with `value` decoded and, if it keeps unreadable rows, that column.

        It raises UnreadableRecordError for an unreadable row that does not stay. It may wait for
        another system without an end: Spark ends the task if the query ends.
        """


UNREADABLE = pa.field("unreadable", pa.struct([("reason", pa.string()), ("value", pa.binary())]))
"""The column of an unreadable row, null for the others: the reason in one line, and the bytes."""


@runtime_checkable
class DecodedSource(Protocol):
    """An optional part of a source: its rows are decoded behind Spark's reader."""

    def create_decoder(self) -> RowDecoder | None:
        """Return the decoder, or None if the rows stay as read.

        Called in the driver, when the source is added to a job; may ask another system. Raises
        ConfigurationError, PreflightError or MissingDependencyError.
        """


@runtime_checkable
class CommitsOffsets(Protocol):
    """An optional part of a source: its system can be told the position reached."""

    def create_offset_committer(self, jvm: Any) -> OffsetCommitter | None:
        """Return a committer, or None without anything to tell.

        `jvm` is Spark's, by py4j, with Spark's own client of the system. Called once a run, in the
        committer's thread.
        """


@runtime_checkable
class InspectedSource(Protocol):
    """A source that can look at its system, for ``explain --preflight``."""

    def inspect_source(self, uid: str, jvm: Any, tolerated_downtime_s: float) -> Sequence[Finding]:
        """Ask the real system and return every finding; change nothing.

        `jvm` is Spark's, by py4j, with Spark's own client of the system. The job may be down for
        `tolerated_downtime_s`, and must then find its rows. Returns within tens of seconds.
        """
