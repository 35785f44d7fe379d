"""A retained checkpoint of a Kafka to Kafka job, restored into new jobs with the same sink.

How: the first job is killed between the decision of an epoch and its commit, and a restored one
takes over, with the same transactional id prefix: it commits the epoch and goes on. One reader sees
every row once, and not a file of the first job has changed. Transactions of the first job's
unfinished next epoch stay open at the broker, and would hold up this reader until they time out:
the test ends it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from tests.chaos.scenario import PassthroughScenario
from tests.integration.kafka import sink_kit as kit


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def job_id(directory: Path) -> str:
    return str(json.loads((directory / "job.json").read_bytes())["body"]["job_id"])


def test_a_job_with_a_kafka_sink_is_restored(kafka: LocalKafka, tmp_path: Path) -> None:
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers, interval="500ms") as scenario:
        first = scenario.job_directory

        running, first_gate = scenario.held("decided:60")
        # Everything started from now on is restored from the first job, into a new storage.
        scenario.environment["SEAMARK_RESTORE"] = str(first)
        scenario.storage = tmp_path / "restored"
        scenario.options["storage"] = str(scenario.storage)
        scenario.job_directory = scenario.storage / scenario.job
        heir, gate = scenario.held()
        first_gate.touch()
        running.die(180)
        before, last = contents(first), max(map(int, (p.name for p in commits(first))))
        sink = kit.sink_on(
            scenario.servers, scenario.output, transactional_id_prefix=scenario.prefix
        )
        gate.touch()
        heir.wait_for_epochs(2)
        assert f"goes on after epoch {last}" in heir.text()
        kit.abort_all(sink, job_id(first), "output")
        scenario.finish(heir)
        assert scenario.open_transactions() == []
        assert len({job_id(first), job_id(scenario.job_directory)}) == 2
        assert contents(first) == before


def commits(job: Path) -> list[Path]:
    return [path for path in (job / "spark/commits").iterdir() if path.name.isdigit()]
