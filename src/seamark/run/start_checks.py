"""The checks of a run before its query starts: whether it can go on from what earlier runs left.

Spark would go on from another program's or another place's offsets and state, and drop or repeat
rows; each check refuses that with the remedy.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.drained import is_drained
from seamark.checkpoint.inspection import damaged, require_sound
from seamark.checkpoint.spark_files import SOURCE_EVOLUTION, newest_file, read_log, read_offsets
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.files import Directory, numbered
from seamark.model.errors import (
    ConfigurationError,
    DrainedError,
    RecordNotStoredError,
    SeamarkError,
)
from seamark.protocol.procedures import put_back_decision, put_back_plans
from seamark.run.failures import other_files
from seamark.run.job_plan import JobPlan
from seamark.run.kafka_topics import (
    ask_topic_ids,
    find_subscriptions,
    made_again,
    offsets_by_uid,
    unfit_offsets,
    unfit_starts,
)
from seamark.run.waiting_rows import unfit_rows
from seamark.spark.file_sources import reads_elsewhere
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.socket_lines import lost_lines
from seamark.spark.state_backend import PARTITIONS, PROVIDER, check_backend

log = logging.getLogger(__name__)

_BY_SAVEPOINT = (
    "or let the job as it was end with a savepoint (stop -p), and restore that, by uid: seamark "
    "run -s PATH"
)

_VALUES_GO_BY = {
    "spark.sql.session.timeZone": "days and hours of timestamps, texts read as timestamps",
    "spark.sql.ansi.enabled": "null instead of an error for what does not fit, or the reverse",
}
"""Spark's settings by which it computes, with what differs; its offset log has none of them."""


def offsets_of(spark: Directory, uids: OperatorUids, epoch: int) -> list[Any]:
    """Return the sources' offsets in an epoch's entry of Spark's offset log, by `source_lines`."""
    return uids.lines_of(read_offsets(spark, epoch))


def values_go_by(spark: SparkSession) -> dict[str, str]:
    """Return the session's settings by which it computes values."""
    return {key: str(spark.conf.get(key)) for key in _VALUES_GO_BY}


def other_values(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Describe each setting by which the same program computes other values than in its last run. A
    time zone is the machine's unless it is set."""
    for key, value in now.items():
        if value != before.get(key, value):
            yield (
                f"{key} is {value}, and was {before[key]} in the job's last run: from here on the "
                f"same rows may give other values ({_VALUES_GO_BY[key]}), and what state has of "
                "before stays as it is. Set it as it was, unless that is meant"
            )


class StartChecks:
    """The checks of one run; `settings` are those of Spark for its query alone."""

    def __init__(
        self, job: CheckpointedJob, plan: JobPlan, settings: Mapping[str, str], *, real_time: bool
    ) -> None:
        self._job, self._name, self._store = job, job.name, job.store
        self._spark_files = job.store.spark_files
        self._plan, self._uids = plan, plan.uids
        self._provider, self._partitions = settings.get(PROVIDER), settings.get(PARTITIONS)
        self._real_time = real_time

    def before(self) -> None:
        """Look for damage, another state backend or moved parts, before anything is written."""
        self._job.require_client_for_rows()
        with self._reading():
            while put_back_decision((decided := self._store.latest_decision()) + 1, self._store):
                pass
            put_back_plans(decided, self._store)
            require_sound(self._store, self._job.find_damaged_rows)
            if self._provider is not None:
                stateful = self._uids.operator_count > 0
                check_backend(self._name, self._spark_files, self._provider, stateful=stateful)
            decided, offsets = self._store.latest_decision(), None
            # Spark runs a planned epoch again, also the first one, by its plan.
            if (newest := max(decided, self._store.latest_planned())) >= 0:
                metadata = read_log(self._spark_files, f"offsets/{newest}")[0]
                self._require_names(metadata)
                self._tell_partitions(metadata)
                offsets = offsets_of(self._spark_files, self._uids, newest)
            self._known = self._store.read_known()
            self._tell_other_settings()
            self._require_places(offsets, new=decided < 0)
            self._require_offsets(offsets or ())
            self._require_channel_state(decided)

    def _tell_other_settings(self) -> None:
        now = values_go_by(self._plan.spark)
        for warning in other_values(self._known.settings, now):
            log.warning("job %s: %s", self._name, warning)
        self._store.known = replace(self._store.known, settings=now)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except SeamarkError:
            raise
        except OSError as error:
            raise RecordNotStoredError(
                f"checkpoint storage {self._store.uri} cannot be read: {error}. Nothing is lost; "
                "check the address, and that its server runs and can be reached from here"
            ) from error

    def _require_channel_state(self, decided: int) -> None:
        """Raise DamagedCheckpointError if rows in the channel state cannot be read,
        ConfigurationError if the program cannot take them."""
        state = self._store.channel_state(decided)
        if why := unfit_rows(state, self._plan):
            raise ConfigurationError(
                f"job {self._name}: epoch {decided} has {state.rows} rows of channel state, {why}"
            )
        if state.stages and self._real_time:
            raise ConfigurationError(
                f"job {self._name}: epoch {decided} has {state.rows} rows of channel state, which "
                'real-time mode cannot take. Run the job once more without execution="real-time", '
                "and end it with a savepoint (stop -p), which leaves no channel state"
            )
        if problems := self._job.find_damaged_channel_state(state):
            raise damaged(self._store, decided, problems)

    def _require_places(self, offsets: Sequence[Any] | None, *, new: bool) -> None:
        """Raise ConfigurationError if an operator or source has another one's place in the plan, or
        if there are more or fewer. Spark goes by the numbers of the places, and would silently give
        it the other's state or offsets. `offsets` are the sources' in the newest plan, None before
        the first; `new`: no epoch is decided."""
        remedy = _BY_SAVEPOINT
        if new:
            remedy = f"no epoch is decided: to begin anew, delete {self._store.uri}"
        if offsets is not None:
            self._require_counts(len(offsets), remedy, new=new)
        named = self._uids.sources or self._uids.operators
        before = StatisticsStore(self._store.files).uids() if named else {}
        if moves := list(self._uids.moves(before, offsets or ())):
            raise ConfigurationError(
                f"job {self._name}: {'; '.join(moves)}. Spark goes by the numbers, and would give "
                f"each what another has left. Put uids and places back; {remedy}"
            )
        self._require_columns(new=new)

    def _require_columns(self, *, new: bool) -> None:
        """Raise ConfigurationError if an operator has another key, or an aggregation another
        function, than in the checkpoint, as far as the names tell. Spark compares types and places
        alone: a sum would go on as a maximum. Another Spark may have other names."""
        version, conf = self._plan.spark.version, self._plan.spark.conf
        same = str if conf.get("spark.sql.caseSensitive") == "true" else str.lower
        now = {str(part.number): list(part.columns) for part in self._plan.query.operators}
        before = {} if new else self._known.state_columns.get(version, {})
        for number, columns in now.items():
            pairs = zip(before.get(number, ()), columns, strict=False)  # Spark sees more or fewer
            if changes := [
                f"{old!r} became {name!r}" for old, name in pairs if same(old) != same(name)
            ]:
                raise ConfigurationError(
                    f"job {self._name}: in the state of operator "
                    f"{self._uids.of_operator(int(number))!r} {', '.join(changes[:5])} since the "
                    "last start. Spark compares types and places alone, and would read one as the "
                    f"other. Put the program back as it was; {_BY_SAVEPOINT}, where new names of "
                    "the same columns are taken"
                )
        self._store.known = replace(self._store.known, state_columns={version: now})

    def _require_names(self, metadata: Mapping[str, Any]) -> None:
        """Raise ConfigurationError if sources have got or lost their names in Spark: it would read
        them from other directories, and by their places."""
        before = (metadata.get("conf") or {}).get(SOURCE_EVOLUTION) == "true"
        if self._uids.source_lines and before != bool(self._uids.source_names):
            have, lack = ("names", "none") if before else ("no names", "some")
            raise ConfigurationError(
                f"job {self._name}: the sources of its checkpoint have {have} of Spark's own "
                f"(DataStreamReader.name), and the program gives {lack}; Spark cannot go on from "
                f"it. Put that back as it was; {_BY_SAVEPOINT}"
            )

    def _tell_partitions(self, metadata: Mapping[str, Any]) -> None:
        """Log that the given number of state partitions is not that of the state, which stays."""
        there = (metadata.get("conf") or {}).get(PARTITIONS)
        if self._uids.operator_count and self._partitions not in (None, there):
            log.warning(
                "job %s: parallelism=%s (-p) has no effect: the state in %s has %s partitions, and "
                "Spark goes on with them. Let the job end with a savepoint (stop -p), and give it "
                "with that: seamark run -s PATH -p %s",
                self._name, self._partitions, self._spark_files.uri, there, self._partitions,
            )  # fmt: skip

    def _require_counts(self, readings: int, remedy: str, *, new: bool) -> None:
        operators = self._uids.operator_count
        states, there = operators, ""  # a first epoch may have failed before it had state
        if not new:
            states = len(numbered(self._spark_files.list("state")))
            there = (
                " (what two operators had that are one now is dropped with -n). A job of an "
                "earlier Seamark computed what several sinks share once for each: "
                "docs/shared-streams.md"
            )
        for what, before, now in (
            ("stateful operators", states, operators),
            ("readings of sources", readings, len(self._uids.source_lines)),
        ):
            if before != now:
                raise ConfigurationError(
                    f"job {self._name}: its checkpoint has {before} {what}, the program {now}. "
                    "Spark goes by their numbers and cannot go on from it. Put the program back "
                    f"as it was; {remedy}{there}"
                )

    def _require_offsets(self, offsets: Sequence[Any]) -> None:
        """Raise ConfigurationError if a source has offsets of another kind, or of a topic in Kafka
        that it does not read, or that was made again, or has read files of another directory. Spark
        would fail in the next epoch, leave out rows, or read files again. What the brokers say of
        the topics goes into this run's lease."""
        reading = find_subscriptions(self._plan)
        problems = unfit_offsets(self._name, offsets, self._uids, reading) if offsets else []
        of_sources = offsets_by_uid(offsets, self._uids)
        before, now = self._known.topics, ask_topic_ids(reading, of_sources)
        problems += unfit_starts(of_sources, reading)
        problems += made_again(self._name, of_sources, before, now, reading)
        for uid, number in self._uids.source_numbers().items():
            place = self._uids.source_names.get(number, str(number))
            file = newest_file(self._spark_files, place, of_sources.get(uid))
            leaf = self._plan.query.leaves[number]
            if file and (reads := reads_elsewhere(leaf, self._plan.spark, file)):
                problems.append(other_files(f"source {uid!r}", reads, file))
        if problems:
            raise ConfigurationError(f"job {self._name}: {'; '.join(problems)}")
        topics = {uid: {**before.get(uid, {}), **now.get(uid, {})} for uid in reading}
        self._store.known = replace(self._store.known, topics=topics)

    def after(self, coordinator: Coordinator) -> None:
        """Look for a drain and for lost lines, when older drivers' epochs are settled."""
        with self._reading():
            self._look_for_drain(coordinator)
            self._tell_lost_lines(coordinator)

    def _look_for_drain(self, coordinator: Coordinator) -> None:
        """Raise DrainedError if the job was drained. Forget a drain cut off before its decision:
        its epoch has closed no window, and is planned again with the watermark of before."""
        decided, planned = coordinator.last_committed, self._store.latest_planned()
        if decided >= 0 and is_drained(self._spark_files.read(f"commits/{decided}")):
            path = self._store.external_path(decided)
            raise DrainedError(
                f"job {self._name} was drained: its windows are closed, and rows that came now "
                "would be dropped as late. To go on after what it has read, restore its savepoint, "
                f"or {path}: seamark run -s PATH"
            )
        if planned > decided and is_drained(self._spark_files.read(f"offsets/{planned}")):
            log.warning("the drain that was begun at epoch %d is forgotten", planned)
            self._store.void_offsets(planned)
            # At-most-once: the epoch was claimed, but it read nothing; its next plan may be done.
            self._store.files.delete(f"epochs/{planned}/started.json")

    def _tell_lost_lines(self, coordinator: Coordinator) -> None:
        """Log the number of socket lines lost by an epoch that is to run again."""
        decided, planned = coordinator.last_committed, self._store.latest_planned()
        if planned <= decided:
            return
        before, now = (
            offsets_of(self._spark_files, self._uids, epoch) if epoch >= 0 else []
            for epoch in (decided, planned)
        )
        places = dict(enumerate(self._uids.source_lines))  # a source may stand at several
        lost = {places.get(place, place): rows for place, rows in lost_lines(before, now)}
        for number, rows in lost.items():
            log.warning(
                "job %s: epoch %d was planned by an earlier run, which did not decide it. The %d "
                "lines that it had read of source %s are lost: a socket sends nothing twice. The "
                "epoch runs again without them",
                self._name, planned, rows, self._uids.of_source(number),
            )  # fmt: skip
