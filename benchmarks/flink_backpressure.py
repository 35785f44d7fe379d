"""The peer of `backpressure.py`: the same pipeline with a slow Python function in PyFlink 2.2.

`run_flink` is called by `backpressure.py`, in its process: it starts this file as a program of the
Python that has apache-flink, asks the job's REST interface for its checkpoints, and ends it when a
`read_committed` reader has seen all rows.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUNDLE_ROWS = 500  # rows that PyFlink gives to Python at once; its default of 100,000 takes 40 s
HISTORY = 100_000  # checkpoints that the REST interface keeps


def run_flink(
    options: dict[str, Any],
    topics: tuple[str, str],
    row_s: float,
    feed: Callable[[], None],
) -> dict[str, Any]:
    """Run one mode, and return its figures, named as those of `backpressure.run_mode`.

    options: those of the benchmark, with ``python`` and ``jar``. feed: produces the rows.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    feeder = threading.Thread(target=feed, daemon=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as storage:
        child = {**options, "topics": topics, "row_s": row_s, "port": port, "storage": storage}
        begun_s = time.monotonic()
        feeder.start()
        program = subprocess.Popen(
            [options["python"], __file__, json.dumps(child)], stdout=subprocess.DEVNULL
        )
        try:
            fed_s = _wait_for_rows(options, topics[1], feeder, program)
            ended_s = time.monotonic()
            done = _completed(port)
        finally:
            program.kill()
            program.wait()
    return {
        "mode": f"Flink {options['mode']}",
        "rows": options["rows"],
        "seconds": ended_s - begun_s,
        "drain_s": ended_s - fed_s,
        "at_s": [(c["trigger_timestamp"] - done[0]["trigger_timestamp"]) / 1e3 for c in done],
        "duration_s": [c["end_to_end_duration"] / 1e3 for c in done],
        "persisted": [c["persisted_data"] for c in done],
    }


def _wait_for_rows(
    options: dict[str, Any],
    topic: str,
    feeder: threading.Thread,
    program: subprocess.Popen[bytes],
) -> float:
    """Return when the last row was produced, once all are visible to a reader."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": options["servers"],
            "group.id": topic,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(topic, p, 0) for p in range(options["partitions"])])
    seen, fed_s = 0, 0.0
    while seen < options["rows"]:
        if program.poll() is not None:
            raise RuntimeError(f"Flink's program ended with {program.returncode}, {seen} rows seen")
        seen += sum(message.error() is None for message in reader.consume(10_000, 0.5))
        if not fed_s and not feeder.is_alive():
            fed_s = time.monotonic()
    reader.close()
    return fed_s or time.monotonic()


def _completed(port: int) -> list[dict[str, Any]]:
    """Return the completed checkpoints, oldest first, from Flink's REST interface."""
    root = f"http://127.0.0.1:{port}/jobs"
    with urllib.request.urlopen(root, timeout=30) as answer:
        job = json.load(answer)["jobs"][0]["id"]
    with urllib.request.urlopen(f"{root}/{job}/checkpoints", timeout=30) as answer:
        history = json.load(answer)["history"]
    return [c for c in reversed(history) if c["status"] == "COMPLETED"]


def main() -> None:
    """Run the pipeline (in Flink's Python) until it is killed."""
    from pyflink.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.connectors.base import DeliveryGuarantee
    from pyflink.datastream.connectors.kafka import (
        KafkaOffsetsInitializer,
        KafkaRecordSerializationSchema,
        KafkaSink,
        KafkaSource,
    )

    options = json.loads(sys.argv[1])
    unaligned = options["mode"] == "unaligned"
    timeout_ms = round(1000 * options["aligned_timeout"])
    settings = {
        "rest.bind-port": options["port"],
        "web.checkpoints.history": HISTORY,
        "pipeline.jars": Path(options["jar"]).absolute().as_uri(),
        "parallelism.default": options["tasks"],
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.timeout": "14 min",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": Path(options["storage"]).as_uri(),
        "execution.checkpointing.unaligned.enabled": str(unaligned).lower(),
        "execution.checkpointing.aligned-checkpoint-timeout": f"{timeout_ms} ms",
        "python.fn-execution.bundle.size": BUNDLE_ROWS,
        "python.executable": options["python"],
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, str(value))
    stream = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(options["servers"])
        .set_topics(options["topics"][0])
        .set_group_id(options["topics"][0])
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    value = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(options["topics"][1])
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(options["servers"])
        .set_record_serializer(value)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(options["topics"][1])
        .set_property("transaction.timeout.ms", "900000")
        .build()
    )
    rows = stream.from_source(source, WatermarkStrategy.no_watermarks(), "in")
    rows.map(Slow(options["row_s"]), Types.STRING()).sink_to(sink)
    stream.execute("backpressure")


class Slow:
    """A function that takes `row_s` seconds for each row, by a sleep every hundredth row."""

    def __init__(self, row_s: float) -> None:
        self._row_s = row_s
        self._rows = 0

    def __call__(self, row: str) -> str:
        self._rows += 1
        if self._rows % 100 == 0:
            time.sleep(100 * self._row_s)
        return row


if __name__ == "__main__":
    main()
