"""Finds the topics read by Kafka sources in Spark's plan: `KafkaSource`s and plain streams.

An offset of a topic that is not read is lost rows to Spark, which fails the query.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from seamark.checkpoint.spark_files import not_its_own
from seamark.run.job_plan import JobPlan
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.planned_query import sources_of
from seamark.spark.plans import name_of

_OPTIONS = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True)
class Subscription:
    """The topics of a Kafka source. `topics` are their names; if `pattern`, a Java regular
    expression of names, is set, `topics` is empty. `fails_on_data_loss`: Spark's option."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    jvm: Any = None
    fails_on_data_loss: bool = True

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
    """Return the subscription in a Kafka source's options. A pattern needs `jvm`."""
    way = next((name for name in _OPTIONS if name in options), None)
    fails = options.get("failondataloss", "true").lower() != "false"
    if way == "subscribepattern":
        return Subscription((), options[way].strip(), jvm, fails)
    if way is None:
        return Subscription(fails_on_data_loss=fails)
    names = json.loads(options[way]) if way == "assign" else options[way].split(",")
    topics = tuple(name.strip() for name in names)
    return Subscription(topics, fails_on_data_loss=fails)


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


def unfit_offsets(
    job: str, offsets: Sequence[Any], uids: OperatorUids, reading: Mapping[str, Subscription]
) -> list[str]:
    """Return a sentence, with a remedy, for each source of another kind than its offset, or that no
    longer reads a topic of its offsets. Called for a job that goes on by Spark's numbers. `offsets`
    are the lines of its offset log; a line is None for a source that has not begun."""
    problems = []
    for uid, number in uids.source_numbers().items():
        line = uids.source_lines.index(number)
        now, offset = reading.get(uid), offsets[line] if line < len(offsets) else None
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
