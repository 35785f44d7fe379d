"""Which topics the Kafka sources in Spark's plan read, `KafkaSource`s and plain streams alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidemark.runtime.operator_uids import OperatorUids, analysed, distinct_sources

_OPTIONS = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True)
class Subscription:
    """What a Kafka source reads. `topics`: their names; empty, if `pattern`, a Java regular
    expression of names, says it; then `matches` is its ``Matcher``'s answer."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    jvm: Any = None

    def reads(self, topic: str) -> bool:
        """Whether it reads a topic."""
        if self.pattern:
            return bool(self.jvm.java.util.regex.Pattern.matches(self.pattern, topic))
        return topic in self.topics

    def __str__(self) -> str:
        return f"topics like {self.pattern}" if self.pattern else ", ".join(self.topics)


def find_subscriptions(stream: DataFrame, uids: OperatorUids) -> Mapping[str, Subscription]:
    """Return what each Kafka source of a query reads, by uid."""
    found = {}
    for number, leaf in enumerate(distinct_sources(analysed(stream))[0]):
        if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName() != "kafka":
            continue
        options = {str(k).lower(): str(v) for k, v in dict(leaf.extraOptions()).items()}
        way = next((name for name in _OPTIONS if name in options), None)
        if way == "subscribepattern":
            jvm = stream.sparkSession._jvm
            found[uids.of_source(number)] = Subscription((), options[way].strip(), jvm)
        elif way is not None:
            names = json.loads(options[way]) if way == "assign" else options[way].split(",")
            found[uids.of_source(number)] = Subscription(tuple(name.strip() for name in names))
    return found
