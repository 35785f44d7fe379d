"""Tables with odd names in their paths: refused when the sink is built, or log and rows lie
together.

delta-rs makes the log, by a URI; the rows go by `seamark.files`, with paths taken literally.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from seamark.files import HadoopSettings, open_directory
from seamark.model.errors import ConfigurationError
from tests.integration.delta.sink_kit import attempt, batch, driver, made, numbers
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3

NAMES = ["a%41b", "100%", "a#1", "a?b", "a b ", "a+b", "é", "a;b", "a[1]", "a{1}", "a*", "a:b",
         "a\\b", "a^b", "a|b", "a`b", 'a"b', "a<b>", "a&k=v", "~", "a'b", "😀"]  # fmt: skip


@pytest.fixture(params=["local", "hdfs", "s3", "gcs", "azure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, HadoopSettings]:
    if request.param == "hdfs":
        hdfs: LocalHdfs = request.getfixturevalue("hdfs")
        return f"{hdfs.uri}/{uuid.uuid4()}", HadoopSettings()
    if request.param == "s3":
        s3: LocalS3 = request.getfixturevalue("s3")
        return f"s3a://{s3.bucket}/{uuid.uuid4()}", HadoopSettings.given(s3.spark_settings(), "s3")
    if request.param in ("gcs", "azure"):
        server = request.getfixturevalue(request.param)
        return server.uri(uuid.uuid4()), HadoopSettings.given(server.row_settings(), "the server")
    return str(tmp_path), HadoopSettings()


def test_log_and_rows_lie_together(place: tuple[str, HadoopSettings]) -> None:
    top, settings = place
    refused = []
    for name in NAMES:
        if name == "a:b" and top.startswith("hdfs:"):  # HDFS has no such names
            continue
        try:
            sink = made(f"{top}/{name}/orders", storage_options=settings)
        except ConfigurationError:
            refused.append(name)
            continue
        writer = sink.create_writer(attempt())
        writer.write(batch(range(10)))
        committables = writer.prepare_commit()
        committer = sink.create_committer(driver())
        committer.preflight()
        committer.commit(committables)
        assert sorted(numbers(sink)) == list(range(10)), name
        found = open_directory(sink.path, settings).tree()
        assert any(path.startswith("_delta_log/") for path in found), name
        assert any(path.endswith(".parquet") for path in found), name
    assert {"100%", "a+b", "a;b", "a&k=v", "~"}.isdisjoint(refused)
    if not top.startswith("hdfs:"):
        assert {"a b ", "é", "a{1}", "😀"}.isdisjoint(refused)
