"""A job over HTTP, killed by kill -9 between `send` and its record, at an endpoint with a table of
keys and at one without; then restored into a new job, while the old one's spool lies in its own
directory.

Three files make three epochs. Each killed driver takes its JVM with it. The endpoints are processes
of their own; their rows are read over HTTP.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from seamark.model.errors import DamagedCheckpointError
from seamark.spark.session import spark_session
from tests.chaos import app_write_ahead
from tests.chaos.driver import Driver
from tests.servers.http_endpoint import HttpEndpoint

EPOCHS = [list(range(n, n + 5)) for n in (0, 5, 10)]
ROWS = [number for epoch in EPOCHS for number in epoch]
KEPT_IN_EPOCH_1 = "rows-sent:3"  # two an epoch: the third is the first sink's in epoch 1
PLAIN_IN_RECOVERY = "rows-sent:2"  # the first sink is sent its epoch again


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session("tests")


@pytest.fixture
def options(tmp_path: Path, endpoints: dict[str, HttpEndpoint]) -> dict[str, Any]:
    (tmp_path / "in").mkdir()
    for number, numbers in enumerate(EPOCHS):
        file = tmp_path / f"in/{number}.json"
        file.write_text("\n".join(json.dumps({"number": n}) for n in numbers))
        os.utime(file, (1_700_000_000 + number,) * 2)  # the oldest is read first
    return {
        "storage": str(tmp_path / "store"),
        "input": str(tmp_path / "in"),
        **{name: endpoint.url for name, endpoint in endpoints.items()},
    }


def killed(options: dict[str, Any], directory: Path, failpoint: str) -> None:
    log = directory / f"{failpoint}.log"
    Driver(Path(app_write_ahead.__file__), options, log, failpoint).die()


def keys(endpoint: HttpEndpoint) -> list[str]:
    return [headers["Idempotency-Key"] for _, headers in endpoint.ask("/requests")]


def test_killed_between_sent_and_recorded(
    options: dict[str, Any], endpoints: dict[str, HttpEndpoint], tmp_path: Path, spark: SparkSession
) -> None:
    kept, plain = endpoints["kept"], endpoints["plain"]
    killed(options, tmp_path, KEPT_IN_EPOCH_1)
    assert kept.rows() == EPOCHS[0] + EPOCHS[1]
    assert plain.rows() == EPOCHS[0]
    killed(options, tmp_path, PLAIN_IN_RECOVERY)
    assert kept.rows() == EPOCHS[0] + EPOCHS[1]
    assert plain.rows() == EPOCHS[0] + EPOCHS[1]

    # A new job goes on from the killed one's checkpoint, whose spool lies in the old directory.
    old, new = Path(options["storage"], "sender"), Path(options["storage"], "restored")
    assert list((old / "wal/plain/1").iterdir())
    app_write_ahead.run(options, "restored", str(old / "epochs/1"))
    assert kept.rows() == ROWS
    assert Counter(plain.rows()) == Counter(ROWS + EPOCHS[1])  # the window, without a token
    assert len(set(keys(kept)[1:3])) == 1  # sent twice in epoch 1, with one token
    assert len(set(keys(plain)[1:3])) == 1
    assert not keys(kept)[3].startswith(keys(kept)[1][:32])  # the new job's own epoch

    # The old job finds what the new one has recorded beside the files, and sends epoch 2 itself:
    # a job of its own, with tokens of its own.
    before = len(keys(plain))
    app_write_ahead.run(options)
    assert Counter(plain.rows()) == Counter(ROWS + EPOCHS[1] + EPOCHS[2])
    assert len(keys(plain)) == before + 1
    for job in (old, new):  # every epoch is committed, so its spool is gone
        assert [path for path in (job / "wal").rglob("*") if path.is_file()] == []


def test_a_damaged_spool_file_is_named_before_anything_is_written(
    options: dict[str, Any], endpoints: dict[str, HttpEndpoint], tmp_path: Path, spark: SparkSession
) -> None:
    killed(options, tmp_path, "decided:2")
    (file,) = Path(options["storage"], "sender/wal/kept/1").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-10])
    leases = sorted(Path(options["storage"], "sender/lease").iterdir())
    with pytest.raises(DamagedCheckpointError, match=rf"{file}: it has \d+ bytes, and \d+ were"):
        app_write_ahead.run(options)
    assert sorted(Path(options["storage"], "sender/lease").iterdir()) == leases
    assert endpoints["kept"].rows() == EPOCHS[0]
    file.write_bytes(data)
    app_write_ahead.run(options)
    for endpoint in endpoints.values():
        assert endpoint.rows() == ROWS
