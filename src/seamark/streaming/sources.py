"""The sources in a streaming DataFrame that the program has read with ``spark.readStream``."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from seamark.api.declarations import DeclaredSource
from seamark.runtime.kafka_topics import kafka_options, subscription
from seamark.runtime.operator_uids import distinct_sources
from seamark.runtime.plans import analysed, name_of, scala_class

REPLAYABLE = (
    "kafka", "rate", "rate-micro-batch", "seamark-datagen", "delta", "iceberg", "hudi", "kinesis",
    "aws-kinesis", "eventhubs", "pulsar", "parquet", "json", "csv", "text", "orc", "avro", "xml",
    "binaryfile",
)  # fmt: skip
"""Formats that give the rows between two offsets again. Of any other one it is not known."""


def sources_of(frame: DataFrame, *, bounded: bool) -> list[DeclaredSource]:
    """Return the sources by Spark's numbers, ``source-0`` first. `bounded`: the query ends with
    what is there."""
    dataset = scala_class(frame._jdf, "org.apache.spark.sql.classic.Dataset")
    session = frame.sparkSession
    found = []
    for number, leaf in enumerate(distinct_sources([analysed(frame)])[0]):
        own = DataFrame(dataset.ofRows(session._jsparkSession, leaf), session)
        format_ = _format(leaf)
        options = kafka_options(own)
        what = f"Spark stream from {format_}"
        if options is not None:
            reading = subscription(options)
            what = f"Kafka topics {reading or '?'}"
            if options.get("kafka.isolation.level", "read_uncommitted") != "read_committed":
                what += " (read_uncommitted)"
        replayable = format_.lower() in REPLAYABLE
        found.append(DeclaredSource(f"source-{number}", what, replayable, bounded, own))
    return found


def _format(leaf: Any) -> str:
    """Return the name of a source's format, as given to ``format(…)``."""
    if name_of(leaf) == "StreamingRelationV2":
        return str(leaf.sourceName())
    if name_of(leaf) == "StreamingRelation":
        return str(leaf.dataSource().className())
    return name_of(leaf)
