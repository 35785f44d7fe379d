"""A retained checkpoint of a Kafka to Kafka job, restored into new jobs with the same sink.

How: while the first job runs, a restored one is refused, because the first still holds the
transactional id prefix. Then the first is killed between the decision of an epoch and its commit,
and a second restore takes over: it commits the epoch and goes on. One reader sees every row once,
and not a file of the first job has changed. Transactions of the first job's unfinished next epoch
stay open at the broker, and would hold up this reader until they time out: the test ends it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from seamark.model.errors import PreflightError
from seamark.sinks.kafka import KafkaSink
from tests.chaos.driver import wait_until
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


def is_free(sink: KafkaSink) -> bool:
    """Whether nobody holds the sink's prefix: a killed driver lets go after ten seconds."""
    try:
        with kit.committing(sink, kit.driver(kit.new_job()), preflight=True):
            return True
    except PreflightError:
        return False


def test_a_job_with_a_kafka_sink_is_restored(kafka: LocalKafka, tmp_path: Path) -> None:
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers, interval="500ms") as scenario:
        first = scenario.job_directory

        def restoring(number: int) -> None:
            """Everything started from now on is restored from the first job, into a new storage."""
            scenario.environment["SEAMARK_RESTORE"] = str(first)
            scenario.storage = tmp_path / f"restored-{number}"
            scenario.options["storage"] = str(scenario.storage)
            scenario.job_directory = scenario.storage / scenario.job

        running, first_gate = scenario.held("decided:60")
        restoring(1)
        refused, gate = scenario.held()
        first_gate.touch()
        running.wait_for_epochs(2)
        gate.touch()
        assert refused.wait(120) == 1, refused.tail()
        said = f"transactional_id_prefix '{scenario.prefix}' is held by the job 'passthrough' (id "
        assert f"{said}{job_id(first)})" in refused.text()
        assert "give this job a prefix of its own, or stop that one" in refused.text()
        assert running.returncode is None, "the first job has suffered"

        restoring(2)
        heir, gate = scenario.held()
        running.die(180)
        before, last = contents(first), max(map(int, (p.name for p in commits(first))))
        sink = kit.sink_on(
            scenario.servers, scenario.output, transactional_id_prefix=scenario.prefix
        )
        wait_until("the dead driver lets go of the prefix", lambda: is_free(sink), 60, pause_s=0.5)
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
