"""Finds the topics read by Kafka sources in Spark's plan: `KafkaSource`s and plain streams.

An offset of a topic that is not read is lost rows to Spark, which fails the query.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from seamark.checkpoint.spark_files import is_kafka, not_its_own
from seamark.model.ignored import ignored
from seamark.model.kafka_client import TopicIds, partitions_of, topic_ids
from seamark.run.job_plan import JobPlan
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.planned_query import sources_of
from seamark.spark.plans import name_of

_OPTIONS = ("subscribe", "subscribepattern", "assign")
_STARTS = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
"""The first one given counts."""


@dataclass(frozen=True)
class Subscription:
    """The topics of a Kafka source. `topics` are their names; if `pattern`, a Java regular
    expression of names, is set, `topics` is empty. `fails_on_data_loss`: Spark's option.
    `options`: of Spark's reader."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    jvm: Any = None
    fails_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold passwords

    def reads(self, topic: str) -> bool:
        """Tell whether the source reads a topic."""
        if self.pattern:
            return bool(self.jvm.java.util.regex.Pattern.matches(self.pattern, topic))
        return topic in self.topics

    def __str__(self) -> str:
        return f"topics like {self.pattern}" if self.pattern else ", ".join(self.topics)


def kafka_options(frame: DataFrame) -> Mapping[str, str] | None:
    """Return the options of a stream from Kafka, by their names in lower case; None for any other
    stream, or a stream of several sources."""
    leaves = sources_of(frame)
    return _options(leaves[0]) if len(leaves) == 1 else None


def _options(leaf: Any) -> Mapping[str, str] | None:
    if name_of(leaf) != "StreamingRelationV2" or leaf.sourceName() != "kafka":
        return None
    return {str(k).lower(): str(v) for k, v in dict(leaf.extraOptions()).items()}


def subscription(options: Mapping[str, str], jvm: Any = None) -> Subscription:
    """Return the subscription in a Kafka source's options. A pattern, and its brokers' answers,
    need `jvm`."""
    way = next((name for name in _OPTIONS if name in options), None)
    fails = options.get("failondataloss", "true").lower() != "false"
    if way == "subscribepattern":
        return Subscription((), options[way].strip(), jvm, fails, options)
    if way is None:
        return Subscription(fails_on_data_loss=fails)
    names = json.loads(options[way]) if way == "assign" else options[way].split(",")
    topics = tuple(name.strip() for name in names)
    return Subscription(topics, "", jvm, fails, options)


def find_subscriptions(plan: JobPlan) -> Mapping[str, Subscription]:
    """Return the subscription of each Kafka source of a query, by uid."""
    subscriptions = {}
    for number, leaf in enumerate(plan.query.leaves):
        options = _options(leaf)
        if options is not None and not options.keys().isdisjoint(_OPTIONS):
            subscriptions[plan.uids.of_source(number)] = subscription(options, plan.spark._jvm)
    return subscriptions


def left_behind(
    uid: str, offset: Mapping[str, Any], reading: Subscription
) -> tuple[str, str] | None:
    """Return, for messages, a clause on the topics of an offset that the source no longer reads,
    and the command that renames the first of them; None if it reads them all."""
    gone = [topic for topic in offset if not reading.reads(topic)]
    if not gone:
        return None
    new = next((topic for topic in reading.topics if topic not in offset), "NEW")
    return (
        f"source {uid!r} is at offsets of topic {', '.join(map(repr, gone))}, which the program "
        f"does not read (it reads {reading})",
        f"seamark offsets set --topic {gone[0]}={new}",
    )


def offsets_by_uid(offsets: Sequence[Any], uids: OperatorUids) -> Mapping[str, Any]:
    """Return the sources' offsets, the lines of a job's offset log, by uid."""
    lines = {uid: uids.source_lines.index(n) for uid, n in uids.source_numbers().items()}
    return {uid: offsets[line] for uid, line in lines.items() if line < len(offsets)}


def _topics_of(offset: Any) -> set[str]:
    return set(offset) if is_kafka(offset) else set()


def ask_topic_ids(reading: Mapping[str, Subscription], offsets: Mapping[str, Any]) -> TopicIds:
    """Return the ids of the topics in the sources' offsets, by uid, and of those that they name.
    What the brokers do not tell is left out: the source itself has the words for its failure."""
    ids = {}
    for uid, of in reading.items():
        names = sorted({*of.topics, *_topics_of(offsets.get(uid))})
        with ignored(f"a look at the ids of the topics of source {uid!r}"):
            ids[uid] = topic_ids(of.jvm, of.options, names)
    return ids


def unfit_starts(offsets: Mapping[str, Any], reading: Mapping[str, Subscription]) -> list[str]:
    """Return a sentence, with a remedy, for each source that begins now and whose starting offsets
    are not those of the partitions there. `offsets` by uid. Spark's query would fail."""
    problems = []
    for uid, of in reading.items():
        option = next((name for name in _STARTS if name in of.options), "")
        text = of.options.get(option, "").strip()
        if offsets.get(uid) or not text.startswith("{"):
            continue
        with ignored(f"a look at the partitions of source {uid!r}"):
            assigned = json.loads(of.options.get("assign", "{}"))
            there = assigned or partitions_of(of.jvm, of.options, of.reads)
            given = {(t, int(p)) for t, start in json.loads(text).items() for p in start}
            read = {(topic, number) for topic, numbers in there.items() for number in numbers}
            wrong = [
                f"{what} {', '.join(f'{topic}/{number}' for topic, number in sorted(those))}"
                for what, those in (("lack", read - given), ("name the unread", given - read))
                if those
            ]
            if wrong:
                problems.append(
                    f"the starting offsets of source {uid!r} {' and '.join(wrong)}; give one to "
                    "every partition that it reads, and to no other (-2: earliest, -1: latest)"
                )
    return problems


def made_again(
    job: str,
    offsets: Mapping[str, Any],
    before: TopicIds,
    now: TopicIds,
    reading: Mapping[str, Subscription],
) -> list[str]:
    """Return a sentence, with a remedy, for each source with offsets of a topic that has another id
    now. `offsets` by uid. Spark passes over the new topic's rows before these offsets."""
    problems = []
    for uid, offset in offsets.items():
        known, there = before.get(uid, {}), now.get(uid, {})
        read = sorted(known.keys() & _topics_of(offset))
        gone = [topic for topic in read if there.get(topic, known[topic]) != known[topic]]
        if gone and reading[uid].fails_on_data_loss:
            problems.append(
                f"source {uid!r} is at offsets of a topic {', '.join(map(repr, gone))} that was "
                "deleted: the brokers have one that was made again under that name, and its rows "
                "before these offsets would never be read. To read it from its start, say so in a "
                f"savepoint, and restore that: seamark offsets rewind --to-earliest --to NEWPATH "
                f"{job}; to go on at these offsets (the topic was moved with them to other "
                "brokers), start once with the source's option failOnDataLoss=false"
            )
    return problems


def unfit_offsets(
    job: str, offsets: Sequence[Any], uids: OperatorUids, reading: Mapping[str, Subscription]
) -> list[str]:
    """Return a sentence, with a remedy, for each source of another kind than its offset, or that no
    longer reads a topic of its offsets. Called for a job that goes on by Spark's numbers. `offsets`
    are the lines of its offset log; a line is None for a source that has not begun."""
    problems = []
    for uid, offset in offsets_by_uid(offsets, uids).items():
        now = reading.get(uid)
        if clause := not_its_own(uid, offset, "", uids.source_kinds.get(uid, "")):
            problems.append(f"{clause}; read the same as before, or begin another checkpoint")
            continue
        if now is None or not now.fails_on_data_loss:
            continue
        if left := left_behind(uid, offset or {}, now):
            clause, rename = left
            problems.append(
                f"{clause}; Spark would take what is in it for lost. Read it again, or say in a "
                "savepoint that it was renamed, and restore that: "
                f"{rename} --to NEWPATH {job}"
            )
    return problems
