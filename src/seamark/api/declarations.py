"""A declared job: its sources, operators and sinks by uid, without Spark.

`seamark.job.Job` fills it; `guarantees` analyses it; `run/query.py` runs it.
"""

import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from seamark.api.checks import no_class, one_of
from seamark.api.config import CheckpointConfig
from seamark.contracts.sink import OUTPUT_MODES, TwoPhaseCommitSink
from seamark.contracts.source import CommitsOffsets, InspectedSource, Source
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Schema

SPARK_DIRECTORY = "spark"
"""The Spark checkpoint location below a job's directory."""
ON_BAD_ROW = ("fail", "dead_letter")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def a_sink(value: Any, setting: str) -> None:
    """Raise ConfigurationError for what is no sink, such as a source, a sink's class or its name.
    `setting` names it in the error."""
    no_class(value, setting)
    if not isinstance(value, TwoPhaseCommitSink):
        raise ConfigurationError(
            f"{setting} is {type(value).__name__}; give a sm.…Sink or your own TwoPhaseCommitSink"
        )


@dataclass(frozen=True)
class DeclaredSource:
    """One source of a job. `bounded` tells whether it ends by itself; `source` is what can be
    asked about it: None for a plain stream of Spark's but from Kafka."""

    uid: str
    description: str
    replayable: bool
    bounded: bool
    dataframe: Any
    source: Source | InspectedSource | None = None

    @property
    def commits_offsets(self) -> CommitsOffsets | None:
        """The source, if its system can be told the position reached."""
        return self.source if isinstance(self.source, CommitsOffsets) else None


@dataclass(frozen=True)
class DeclaredSink:
    """One sink of a job, with its DataFrame and the SQL for the sink's columns.

    `schema` is the DataFrame's own, before that SQL. A sink for rows refused by another sink has
    the other's uid in `dead_letters_of`, and no DataFrame. `declared_at` is its place in the
    program, file and line; "" if unknown. `process` makes the sink's
    rows of the DataFrame's in the sink's tasks (`run/process.py`).
    """

    uid: str
    sink: TwoPhaseCommitSink[Any]
    dataframe: Any
    select_expressions: tuple[str, ...]
    schema: Schema = ()
    dead_letters_of: str = ""
    declared_at: str = ""
    process: Any = None

    @property
    def description(self) -> str:
        """One line for people."""
        what = self.sink.describe()
        return f"dead letters of {self.dead_letters_of}: {what}" if self.dead_letters_of else what


@dataclass
class JobDeclaration:
    """The declaration of one job, by uid. `operators` are the DataFrames of the stateful operators
    named by the user. Raises ConfigurationError at the first wrong value."""

    name: str
    checkpoint: CheckpointConfig
    output_mode: str = "append"
    sources: dict[str, DeclaredSource] = field(default_factory=dict)
    operators: dict[str, Any] = field(default_factory=dict)
    sinks: dict[str, DeclaredSink] = field(default_factory=dict)
    directory: str = ""
    """The name of its directory in the storage; the job's own name unless given."""
    spark_directory: str = SPARK_DIRECTORY
    """The path of its Spark checkpoint location below that; "" for the directory itself."""
    query_name: str | None = ""
    """The name of its Spark query; the job's own name unless given, None for no name."""
    key: str = field(default_factory=lambda: f"seamark.{uuid.uuid4().hex}")
    """Under which uids are noted in Spark's plans, which other jobs may have too."""

    def __post_init__(self) -> None:
        check_name(self.name, "Job: name")
        self.directory = self.directory or self.name
        self.query_name = self.name if self.query_name == "" else self.query_name
        one_of(self.output_mode, OUTPUT_MODES, f"Job {self.name!r}: output_mode")

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself: it has sources, all of them bounded."""
        return bool(self.sources) and all(s.bounded for s in self.sources.values())

    def require_whole(self) -> None:
        """Raise ConfigurationError without a source or a sink: the job cannot run."""
        if not self.sinks:
            raise ConfigurationError(
                f"Job {self.name!r} has no sink; add one with job.sink(dataframe, sink, uid=…)"
            )
        if not self.sources:
            raise ConfigurationError(
                f"Job {self.name!r} has no source; add it with job.source(source, uid=…)"
            )

    def below(self, directory: str) -> str:
        """Return the Spark checkpoint location of this job in `directory`, its own as a URI."""
        return f"{directory}/{self.spark_directory}".rstrip("/")

    def claim_uid(self, uid: object, what: str) -> str:
        """Return `uid` if it is valid and no other part of this job has it."""
        checked = check_name(uid, f"Job {self.name!r}: uid of {what}")
        for kind, taken in (
            ("a source", self.sources),
            ("an operator", self.operators),
            ("a sink", self.sinks),
        ):
            if checked in taken:
                raise ConfigurationError(
                    f"Job {self.name!r}: uid {checked!r} is given to {what}, but {kind} has it "
                    "already; every source, operator and sink needs a uid of its own"
                )
        return checked


def check_name(value: object, setting: str) -> str:
    """Return `value` if it can name a job or a part of one: it becomes part of paths and ids."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "…"
        raise ConfigurationError(
            f"{setting} is {shown}; allowed are 1 to 128 letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return value
