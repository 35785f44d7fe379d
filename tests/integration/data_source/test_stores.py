"""The location of a query of ``format("seamark")`` on HDFS and S3, without a JVM in its workers:
replays and fences on the real stores, and kill -9 of the whole tree. The checkpoint is local."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seamark.datasource.location import Location
from seamark.model.errors import FencedError
from tests.integration.data_source import test_kills as kills
from tests.integration.data_source.test_kills import directory as directory
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.storage_servers import spark_configuration
from tests.unit.datasource.played import IDS
from tests.unit.datasource.played import Query as Played


@pytest.fixture(params=["hdfs", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The writer's options for a location on the store; this process reaches the store too."""
    if request.param == "hdfs":
        hdfs: LocalHdfs = request.getfixturevalue("hdfs")
        return {"location": f"{hdfs.uri}/locations/{tmp_path.name}"}
    s3: LocalS3 = request.getfixturevalue("s3")
    for name, text in spark_configuration(tmp_path / "conf", s3).items():
        monkeypatch.setenv(name, text)
    settings = {k.removeprefix("spark.hadoop."): v for k, v in s3.spark_settings().items()}
    return {"location": f"s3a://{s3.bucket}/locations/{tmp_path.name}", **settings}


def test_replays_and_fences(place: dict[str, str], tmp_path: Path) -> None:
    options = {"sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t", **place}
    query = Played(**options)
    query.run(0, 1, 2)
    query.run(1, 3)
    query.end_spark()
    query.run(1, 3)  # Spark died before its commit log had it
    query.run(2, 4, commits=False)  # and here before its decision
    older = query.plan(IDS)
    query.end_spark()
    query.run(2, 4)
    at = query.committing()
    assert older.this.number < max(at.log.numbers())
    with pytest.raises(FencedError):
        at.commit(late_decision(at, older), at.job_id, math.inf)
    assert sorted(kills.in_sqlite(tmp_path / "t.db")) == [1, 2, 3, 4]
    secrets = {text for name, text in place.items() if name.endswith("secret.key")}
    for number in at.files.list("executions"):
        record = at.files.read(f"executions/{number}/started.json").decode()
        assert not any(secret in record for secret in secrets)
        assert json.loads(record)["body"]["pages"]["location"]["options"]["sink"] == "sqlite"
    hidden = "".join(f"{name}={text}\n" for name, text in place.items() if name.endswith(".key"))
    (tmp_path / "options").write_text(hidden)
    at_sink = ("--location", place["location"], "--options", str(tmp_path / "options"))
    assert asked("txn", "list", *at_sink) == []
    found = asked("audit", *at_sink)
    assert (found["epochs"], found["findings"]) == ([0, 2], 0)


def asked(*command: str) -> Any:
    """Return what a verb prints, as a user runs it: this process may have a Spark session, whose
    settings of the store would count."""
    done = subprocess.run(
        [sys.executable, "-m", "seamark", *command, "--json"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def late_decision(at: Location, older: Any) -> Any:
    """Return what a run that has slept would decide."""
    newest = at.log.entries()[max(at.log.numbers())]
    return type(newest)(3, "q", older.this.number, older.this.generation, newest.part)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_killed(place: dict[str, str], directory: Path) -> None:
    options = {"sink": "sqlite", "path": f"{directory}/t.db", "table": "t", **place}
    query = kills.Query(directory, options=options)
    query.die_at(kills.FEW)
    query.finish()
    kills.require_once(kills.in_sqlite(directory / "t.db"))
