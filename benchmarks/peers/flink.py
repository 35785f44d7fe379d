"""PyFlink SQL, exactly-once into Kafka: a mini cluster in the client's JVM, one job after another.

Run by the Python of an environment of its own, which has no Seamark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import nexmark_flink
from benchmarks.peers.engine import serve
from benchmarks.peers.work import DELAY_S, FIRST_MS, INTERVAL_S, PARTITIONS, WINDOW_MS

STATEMENTS = {
    "a": "SELECT k, v FROM source",
    "b-row": "SELECT k, upper_row(v) FROM source",
    "b-batch": "SELECT k, upper_batch(v) FROM source",
    "c": "SELECT k, k || '|' || DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss') || '|' || "
    "CAST(COUNT(*) AS STRING) FROM TABLE(TUMBLE(TABLE source, DESCRIPTOR(happened), "
    f"INTERVAL '{WINDOW_MS // 1000}' SECOND)) GROUP BY k, window_start, window_end",
}
EVENT_TIME = (
    f", happened AS TO_TIMESTAMP_LTZ({FIRST_MS} + CAST(SUBSTRING(v FROM 1 FOR 10) AS BIGINT), 3)"
    f", WATERMARK FOR happened AS happened - INTERVAL '{DELAY_S}' SECOND"
)
TASKS = min(PARTITIONS, os.cpu_count() or 1)


class Flink:
    """Jobs of one PyFlink client."""

    def __init__(self, servers: str, jar: str) -> None:
        self._servers, self._jar = servers, jar
        self._job: Any = None

    def about(self) -> dict[str, str]:
        """Return the versions and what is set."""
        from importlib.metadata import version

        return {
            "version": f"PyFlink {version('apache-flink')}, {Path(self._jar).stem}",
            "guarantee": "exactly-once",
            "settings": f"SQL; checkpoints each {INTERVAL_S} s; parallelism {TASKS}; RocksDB, "
            "512 MB of managed memory; mini cluster, the JVM's default heap; defaults else",
        }

    def start(self, run: dict[str, Any]) -> None:
        """Start a run's job, from its last checkpoint if there is one; return when it runs."""
        from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
        from pyflink.table.udf import udf

        table = TableEnvironment.create(
            EnvironmentSettings.new_instance()
            .in_streaming_mode()
            .with_configuration(self._configuration(Path(run["storage"])))
            .build()
        )
        text = DataTypes.STRING()
        table.create_temporary_function("upper_row", udf(lambda v: v.upper(), result_type=text))
        table.create_temporary_function(
            "upper_batch", udf(lambda v: v.str.upper(), result_type=text, func_type="pandas")
        )
        for statement in self._statements(run):
            result = table.execute_sql(statement)
        self._job = result.get_job_client()
        while (status := self._job.get_job_status().result().name) not in ("RUNNING", "FINISHED"):
            if status in ("FAILED", "CANCELED"):
                raise RuntimeError(f"the job is {status}")
            time.sleep(0.01)

    def _statements(self, run: dict[str, Any]) -> list[str]:
        """Return the statements of a run's job, the last of which starts it."""
        servers = f"'properties.bootstrap.servers'='{self._servers}'"
        source = (
            f"{servers}, 'topic'='{run['source']}', 'properties.group.id'='{run['target']}', "
            "'scan.startup.mode'='earliest-offset'"
        )
        target = (
            f"{servers}, 'topic'='{run['target']}', 'sink.delivery-guarantee'='exactly-once', "
            f"'sink.transactional-id-prefix'='{run['target']}', "
            "'properties.transaction.timeout.ms'='900000'"
        )
        work = run["work"]
        if work not in STATEMENTS:
            return nexmark_flink.statements(work, source, target)
        kind = "BYTES" if work == "a" else "STRING"
        kafka = (
            "'connector'='kafka', 'key.format'='raw', 'key.fields'='k', 'value.format'='raw', "
            "'value.fields-include'='EXCEPT_KEY'"
        )
        return [
            f"CREATE TABLE source (k {kind}, v {kind}{EVENT_TIME if work == 'c' else ''}) "
            f"WITH ({kafka}, {source})",
            f"CREATE TABLE target (k {kind}, v {kind}) WITH ({kafka}, {target})",
            f"INSERT INTO target {STATEMENTS[work]}",
        ]

    def _configuration(self, storage: Path) -> Any:
        from pyflink.common import Configuration

        settings = {
            "pipeline.jars": Path(self._jar).as_uri(),
            "parallelism.default": str(TASKS),
            "table.local-time-zone": "UTC",
            "execution.checkpointing.interval": f"{INTERVAL_S} s",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.dir": storage.as_uri(),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "state.backend.type": "rocksdb",
            "taskmanager.memory.managed.size": "512m",
            "python.executable": sys.executable,
            "python.client.executable": sys.executable,
        }
        done = sorted(storage.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
        if done:
            settings["execution.state-recovery.path"] = done[-1].parent.as_uri()
        configuration = Configuration()
        for name, value in settings.items():
            configuration.set_string(name, value)
        return configuration

    def finish(self) -> None:
        """Wait until the job that ends by itself has ended; its rows are committed then."""
        self._job.get_job_execution_result().result()

    def stop(self) -> None:
        if self._job is not None:
            self._job.cancel().result()
            self._job = None


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    serve(Flink(options["servers"], options["jar"]))
