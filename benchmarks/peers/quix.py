"""Quix Streams, exactly-once: a process for each core, in one consumer group.

Run by the Python of an environment of its own, which has no Seamark. Quix Streams has no function
on a batch of rows.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers.engine import serve
from benchmarks.peers.work import (
    DELAY_S,
    FIRST_MS,
    INTERVAL_S,
    PARTITIONS,
    WINDOW_MS,
    window_text,
)

PROCESSES = min(PARTITIONS, os.cpu_count() or 1)
SPAWN = multiprocessing.get_context("spawn")
START_S = 120


class Quix:
    """The processes of one job."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._processes: list[Any] = []

    def about(self) -> dict[str, str]:
        """Return the versions and what is set."""
        from importlib.metadata import version

        return {
            "version": f"Quix Streams {version('quixstreams')}",
            "guarantee": "exactly-once",
            "settings": f"{PROCESSES} processes; commit each {INTERVAL_S} s; RocksDB with "
            "changelog topics; defaults else",
        }

    def start(self, run: dict[str, Any]) -> None:
        """Start the processes; return when the first one has partitions."""
        if run["work"] == "b-batch":
            raise NotImplementedError("no function on a batch of rows")
        together, assigned = SPAWN.Barrier(PROCESSES), SPAWN.Queue()
        for number in range(PROCESSES):
            arguments = (self._servers, {**run, "number": number}, together, assigned)
            self._processes.append(SPAWN.Process(target=work, args=arguments))
            self._processes[-1].start()
        assigned.get(timeout=START_S)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()  # Quix Streams commits, and ends
        for process in self._processes:
            process.join()
        self._processes.clear()


def work(servers: str, run: dict[str, Any], together: Any, assigned: Any) -> None:
    """Run one process until SIGTERM."""
    from quixstreams import Application

    class Told(Application):
        """Tells when it has partitions."""

        def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
            super()._on_assign(consumer, partitions)
            if partitions:
                assigned.put(run["number"])

    app = Told(
        broker_address=servers,
        consumer_group=run["target"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=INTERVAL_S,
        state_dir=Path(run["storage"]) / str(run["number"]),
        loglevel="WARNING",
    )
    counts = run["work"] == "c"
    source = app.topic(
        run["source"],
        value_deserializer="bytes" if run["work"] == "a" else "string",
        key_deserializer="bytes",
        timestamp_extractor=event_time if counts else None,
    )
    target = app.topic(
        run["target"],
        value_serializer="bytes" if run["work"] == "a" else "string",
        key_serializer="bytes",
    )
    rows = app.dataframe(source)
    if run["work"] == "b-row":
        rows = rows.apply(lambda value: value.upper())
    elif counts:
        window = rows.tumbling_window(
            timedelta(milliseconds=WINDOW_MS), grace_ms=timedelta(seconds=DELAY_S)
        )
        # A partition's last record closes the windows of all its keys.
        rows = window.count().final(closing_strategy="partition").apply(as_text, metadata=True)
    rows.to_topic(target)
    together.wait(START_S)
    app.run()


def event_time(value: Any, headers: Any, timestamp: float, kind: Any) -> int:
    return FIRST_MS + int(value[:10])


def as_text(counted: dict[str, int], key: bytes, timestamp: int, headers: Any) -> str:
    return f"{key.decode()}|{window_text(counted['start'])}|{counted['value']}"


if __name__ == "__main__":
    serve(Quix(json.loads(sys.argv[1])["servers"]))
