"""The facts about a declared job: what the rules (`rules.py`) and the end-to-end level
(`end_to_end.py`) are derived from. `run/job_facts.py` collects them."""

from collections.abc import Sequence
from dataclasses import dataclass

from seamark.contracts.sink import OUTPUT_MODES
from seamark.model.guarantee import Guarantee, SinkWay


@dataclass(frozen=True)
class SourcePart:
    """A source.

    replayable: whether the rows between two recorded offsets can be read again.
    places: the places read, as `TwoPhaseCommitSink.places`.
    isolation: Kafka's isolation level; "" for other systems.
    fails_on_data_loss: False if the source goes on without rows deleted unread.
    skips: the options by which it passes over files that it cannot read, or removes those read.
    unknown_options: those that Spark does not know, each with a question about the nearest one.
    """

    uid: str
    description: str
    replayable: bool
    places: tuple[str, ...] = ()
    isolation: str = ""
    fails_on_data_loss: bool = True
    skips: tuple[str, ...] = ()
    unknown_options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class OperatorPart:
    """A stateful operator. `named`: its uid is the program's, not Spark's number. `repeats`: in
    output modes other than append a row leaves it again when it changes, or in each epoch."""

    uid: str
    description: str
    named: bool = True
    repeats: bool = True


@dataclass(frozen=True)
class PlannedFunction:
    """A function in a sink's plan: its column, its name, and its place in the program
    (``app.py:12``, "" if Spark does not know it)."""

    column: str
    function: str
    line: str = ""

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line else ""
        return f"{self.column}: {self.function}(){at}"


@dataclass(frozen=True)
class SinkPart:
    """A sink, and its part in the checkpoint.

    A replay may change the values of the functions `varying`, and may change those of `python`
    unless these are pure; `epoch_time` functions give the time of their epoch's planning. `places`
    are the sink's own. `upstream` lists the parts feeding it, in the order of the data; None if the
    plan is not known: then every source does. `output_modes`: as `TwoPhaseCommitSink`. `read_by`:
    the sources of Spark's that would read the files that it writes. `in_checkpoint`: its directory
    is the job's own in the checkpoint storage, or shows that to readers. `replaces`: it has
    keys, and a row takes the place of the one with its key.
    """

    uid: str
    description: str
    way: SinkWay
    varying: tuple[PlannedFunction, ...] = ()
    epoch_time: tuple[PlannedFunction, ...] = ()
    python: tuple[PlannedFunction, ...] = ()
    places: tuple[str, ...] = ()
    upstream: tuple[str, ...] | None = None
    read_by: tuple[str, ...] = ()
    in_checkpoint: bool = False
    replaces: bool = False
    output_modes: tuple[str, ...] = OUTPUT_MODES

    @property
    def overwrites(self) -> bool:
        """Whether a row takes the place of another one."""
        return self.replaces or self.way is SinkWay.IDEMPOTENT


@dataclass(frozen=True)
class OtherJob:
    """Another job of the same storage, without a recorded end: the places written by its sinks, and
    those read by its sources without waiting for commits."""

    name: str
    writes: frozenset[str] = frozenset()
    reads_uncommitted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class JobFacts:
    """A declared job.

    mode: the checkpoint mode, as a `Guarantee` or its value (``"exactly-once"``): a cap.
    durable: whether checkpoints outlive the program; without them no guarantee does.
    storage: the checkpoints' URI.
    ephemeral: why checkpoints may vanish although they are `durable`; "" if they do not.
    on_cluster: whether executors run on other machines.
    sharing: a line for each stream shared by sinks, and for each computed more than once.
    """

    sources: Sequence[SourcePart]
    operators: Sequence[OperatorPart]
    sinks: Sequence[SinkPart]
    mode: Guarantee | str
    durable: bool = True
    sharing: tuple[str, ...] = ()
    storage: str = ""
    ephemeral: str = ""
    on_cluster: bool = False
    num_retained: int = 100
    max_concurrent_checkpoints: int = 1
    others: Sequence[OtherJob] = ()
    output_mode: str = "append"

    def sources_of(self, sink: SinkPart) -> list[SourcePart]:
        """Return the sources feeding a sink."""
        return [s for s in self.sources if sink.upstream is None or s.uid in sink.upstream]

    def repeats_into(self, sink: SinkPart) -> bool:
        """Tell whether a sink gets a row again when it changes, or in each epoch."""
        upstream = sink.upstream
        return self.output_mode != "append" and (
            upstream is None or any(o.repeats and o.uid in upstream for o in self.operators)
        )
