"""A savepoint as the origin of a restore: sources, operators and sinks are found by uid, and the
state goes onto any number of partitions and any backend."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.inspection import committables_of
from seamark.checkpoint.spark_files import not_its_own
from seamark.checkpoint.store import CheckpointStore
from seamark.model.durations import moment_text
from seamark.model.errors import CorruptRecordError, DamagedCheckpointError
from seamark.run.kafka_topics import Subscription, ask_topic_ids, left_behind, made_again
from seamark.savepoints.claims import claim, claimed_by, is_owned, read_claim
from seamark.savepoints.record import NOT_KNOWN, Operator, SavepointRecord, Source
from seamark.savepoints.restore.location import (
    Placement,
    find_damage,
    fit_problems,
    new_settings,
    restore_canonical,
    saved_metadata,
)
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.restore.origin import Origin, Parts, Waiting
from seamark.savepoints.restore.plan import Action, ClaimMode, Side, SinkPlan
from seamark.savepoints.state.planned import PlannedState, StateMetadata
from seamark.savepoints.take import uncommitted
from seamark.spark.hadoop_files import open_files


@dataclass(frozen=True)
class TopicChanges:
    """The program's effect on a savepoint's Kafka offsets.

    Spark takes the offset of a topic no longer read for lost rows, and fails the query. It reads a
    topic without offsets from the log's start, whatever the starting offsets are. So the user must
    declare a renamed topic: `seamark offsets … --topic OLD=NEW`.

    `problems`: topics no longer read, and sources of another kind, each as a sentence for the user.
    `offsets`: by uid, the rest of a source's offset without those topics. `begun`: uids
    of sources without any offset left; they begin at their own starting offsets. `added`: by uid,
    topics read from their start.
    """

    problems: tuple[str, ...] = ()
    offsets: Mapping[str, Any] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()
    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def topic_changes(
    savepoint: str,
    sources: Sequence[Source],
    reading: Mapping[str, Subscription],
    kinds: Mapping[str, str],
) -> TopicChanges:
    """Compare a savepoint's sources with the program's: by uid the subscriptions of those that read
    Kafka, and the `kinds` of all. `savepoint` is its path, for the remedy."""
    problems, offsets, begun, added = [], {}, set(), {}
    for source in sources:
        if clause := not_its_own(source.uid, source.offset, source.kind, kinds.get(source.uid, "")):
            problems.append(
                f"{clause}; give it a uid of its own, or let it begin where the program says: -n, "
                "allow_non_restored_state=True"
            )
            begun.add(source.uid)
        if clause or source.uid not in reading or source.offset is None:
            continue
        now = reading[source.uid]
        kept = {t: partitions for t, partitions in source.offset.items() if now.reads(t)}
        new = tuple(topic for topic in now.topics if topic not in source.offset)
        if left := left_behind(source.uid, source.offset, now):
            clause, rename = left
            problems.append(
                f"{clause}. If it was renamed, say so in a copy: {rename} {savepoint}; to leave "
                "the rest of it unread: -n, allow_non_restored_state=True"
            )
            offsets[source.uid] = kept
        if not kept and source.offset:
            begun.add(source.uid)
        elif new:
            added[source.uid] = new
    return TopicChanges(tuple(problems), offsets, frozenset(begun), added)


class SavepointOrigin(Origin):
    """A whole savepoint. The constructor reads all of its files through. `begun`: the decisions of
    an interrupted restore of it into the same directory."""

    kind = "savepoint"

    def __init__(
        self,
        spark: SparkSession,
        record: SavepointRecord,
        job: NewJob,
        begun: Mapping[str, Any] | None,
    ) -> None:
        self._spark, self._record, self._job, self._begun = spark, record, job, begun
        self.name = f"savepoint {record.uri}"
        self.format = record.type.value
        self.state = Side(
            record.job_name,
            record.state_backend,
            record.partitions,
            job_id=record.job_id,
            epoch=record.epoch,
            created_ms=round(record.created_at * 1000),
            watermark_ms=record.watermark_ms,
        )
        self.job_id, self.epoch = record.job_id, record.epoch
        self.watermark_ms, self.offsets_set = record.watermark_ms, record.offsets_set
        self.values_by = record.values_by
        self.settings = {
            **record.settings,
            **new_settings(record, job.backend, job.partitions or record.partitions),
        }
        kinds = job.program.uids.source_kinds
        self._topics = topic_changes(record.uri, record.sources, job.reading, kinds)
        self._uncommitted = uncommitted.uncommitted(spark, record)
        self._to_commit = committables_of(self._uncommitted.values())
        self._damage = find_damage(spark, record)
        if self._damage:
            what = f"{self.name} is damaged; nothing was written"
            self.failure = DamagedCheckpointError.found(what, self._damage)

    def parts(self, wanted: PlannedState | None) -> Parts:
        """Find the parts by uid. A source without any offset left begins as a new one."""
        uids, topics = self._job.program.uids, self._topics
        operators, sources = uids.operator_numbers(), uids.source_numbers()
        return Parts(
            [(o, operators.get(o.uid)) for o in self._record.operators],
            [
                (replace(s, offset=topics.offsets.get(s.uid, s.offset)), sources.get(s.uid))
                for s in self._record.sources
                if s.uid not in topics.begun
            ],
        )

    def _placement(self, parts: Parts) -> Placement:
        return Placement(
            {o.uid: number for o, number in parts.operators if number is not None},
            {s.uid: number for s, number in parts.sources if number is not None},
            self._job.program.uids.source_lines,
            self._topics.offsets,
            self._job.program.uids.source_names,
        )

    # --- problems

    def problems(self) -> Iterator[str]:
        """Yield the problems: the claim, parts missing in the program, its sinks' transactions,
        topics, damage, and state that the backend cannot hold."""
        record, job = self._record, self._job
        yield from self._claim_problems()
        if not job.allow_non_restored_state:
            yield from self._left_problems()
            if self._to_commit:
                yield from uncommitted.problems(record, job.sinks)
            yield from self._topics.problems
        offsets = {s.uid: s.offset for s in record.sources if s.uid in job.reading}
        before = {s.uid: s.topics for s in record.sources}
        yield from made_again(
            record.uri, offsets, before, ask_topic_ids(job.reading, offsets), job.reading
        )
        if self._damage:
            yield from self._damage
        else:
            placement = self._placement(self.parts(None))
            yield from fit_problems(self._spark, record, placement, job.backend, job.partitions)

    def _claim_problems(self) -> Iterator[str]:
        try:
            claim = read_claim(open_files(self._spark, self._record.uri, make=False))
        except CorruptRecordError as error:
            yield str(error)
            return
        mine = claim and self._begun is not None and self._begun["job_id"] == claim.job_id
        if claim is not None and not mine and is_owned(claim, self._job.directory):
            yield claimed_by(self._record.uri, claim)

    def _left_problems(self) -> Iterator[str]:
        uids = self._job.program.uids
        operators, sources = uids.operator_numbers(), uids.source_numbers()
        left = [
            *(f"operator {o.uid!r} ({self._size(o)} of state)" for o in self._record.operators
              if o.uid not in operators),
            *(f"source {s.uid!r}" for s in self._record.sources if s.uid not in sources),
            *(f"sink {uid!r} ({count} transactions to commit)"
              for uid, count in self._to_commit.items() if uid not in self._job.sinks),
        ]  # fmt: skip
        if left:
            yield (
                f"the savepoint has {', '.join(left)}, and the program has nothing of these uids; "
                "name them with uid= and job.uid(…), or drop what they have: -n, "
                "allow_non_restored_state=True"
            )

    def _size(self, operator: Operator) -> str:
        if operator.rows == NOT_KNOWN:
            return f"{self.bytes_of(operator)} bytes"
        return f"{operator.rows} rows"

    # --- for the plan

    def metadata(self) -> StateMetadata:
        """Return the metadata in the savepoint."""
        return saved_metadata(self._spark, self._record)

    def bytes_of(self, operator: Operator) -> int | None:
        """Return the bytes of its rows, or of a native savepoint's files."""
        return self._record.bytes_of(operator)

    def sinks(self) -> Iterator[SinkPlan]:
        """Yield the savepoint's sinks, and the program's; an older savepoint does not list its
        job's sinks."""
        saved = dict.fromkeys([*(sink.uid for sink in self._record.sinks), *self._to_commit])
        for uid in dict.fromkeys([*saved, *self._job.sinks]):
            action: Action | None = Action.NEW if self._record.sinks else None
            if uid not in self._job.sinks:
                action = Action.DROPPED
            elif uid in saved:
                action = Action.MAPPED
            yield SinkPlan(uid, action, commit=self._to_commit.get(uid, 0))

    def warnings(self) -> Iterator[str]:
        """Yield a drain, dropped transactions, new topics, and new sources behind the watermark."""
        record, job = self._record, self._job
        if record.drained:
            yield (
                "the savepoint's job was drained: its windows were closed early, and rows of "
                "theirs that come now make a second result"
            )
        if job.allow_non_restored_state:
            unfit = uncommitted.unfit(record, job.sinks)
            for uid, count in self._to_commit.items():
                if uid in unfit:
                    yield (
                        f"{count} transactions of sink {uid!r} are dropped: only job "
                        f"{record.job_id} in {record.job_directory} can still commit them, when it "
                        "is started again"
                    )
        late = ""
        if record.watermark_ms > 0:
            moment = moment_text(record.watermark_ms)
            late = f"; operators of event time drop its rows older than the watermark, {moment}"
        for uid, added in self._topics.added.items():
            yield f"source {uid!r} reads {', '.join(added)} from the start of its log{late}"
        known = {s.uid for s in record.sources if s.offset is not None} - self._topics.begun
        for uid in job.program.uids.source_numbers():
            if late and uid not in known:
                yield f"source {uid!r} begins anew{late}"

    # --- the restore

    def decisions(self) -> dict[str, Any]:
        """Return by epoch the sinks whose transactions this job commits."""
        dropped = uncommitted.unfit(self._record, self._job.sinks)
        kept = {
            str(epoch): [uid for uid in parts if uid not in dropped]
            for epoch, parts in self._uncommitted.items()
        }
        return {"commits": {epoch: uids for epoch, uids in kept.items() if uids}}

    def fixed(self, parts: Parts) -> dict[str, Any]:
        """Return what determines the copy's bytes and the savepoint's owner: the options, and a
        digest of where the program has its parts. A changed program must not finish a copy with
        Spark's numbers of the first one."""
        new = [
            (each.index, each.planned.operators[each.index].name) for each in parts.new_operators
        ]
        placement = json.dumps([asdict(self._placement(parts)), new], sort_keys=True)
        return {
            "placement": hashlib.sha256(placement.encode()).hexdigest(),
            "partitions": self._job.partitions,
            "state_backend": self._job.backend.value,
            "claim_mode": self._job.claim_mode.value,
        }

    def claim(self, job_id: str, directory: str) -> None:
        """Write ``claimed.json``, if the job asks for it."""
        if self._job.claim_mode is ClaimMode.CLAIM:
            files = open_files(self._spark, self._record.uri, make=False)
            claim(files, job_id, self._job.name, directory)

    def copy(self, target: CheckpointStore, decided: Mapping[str, Any], parts: Parts) -> None:
        """Write its state anew, and copy the rows of the transactions that the job commits."""
        restore_canonical(
            self._spark,
            self._record,
            target.spark_files.uri,
            query_id=decided["query_id"],
            partitions=self._job.partitions,
            backend=self._job.backend,
            placement=self._placement(parts),
            new_operators=parts.new_operators,
        )
        if commits := decided["commits"]:
            uncommitted.put_back(
                self._spark, self._record, target, {u for of in commits.values() for u in of}
            )

    def waiting(self, decided: Mapping[str, Any]) -> Waiting:
        """Return the transactions decided to be this job's."""
        commits = {int(epoch): uids for epoch, uids in decided["commits"].items()}
        parts = uncommitted.by_epoch(self._record)
        return {
            epoch: partial(dict, {uid: parts[epoch][uid] for uid in commits.get(epoch, ())})
            for epoch in range(min(commits, default=self.epoch + 1), self.epoch + 1)
        }
