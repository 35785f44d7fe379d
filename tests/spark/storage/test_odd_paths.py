"""Paths with special names for URIs, globs and locales, in real runs.

How: Hadoop is asked where it takes a drawn path to be; a job with an odd name in every path is
killed, run again, saved and restored, and all its rows and files are counted. The same names are
tried on a real HDFS and a real S3 server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from seamark.checkpoint.inspection import require_sound
from seamark.checkpoint.store import CheckpointStore
from seamark.files import HadoopSettings, open_directory, shared_uri
from seamark.files.local import LocalDirectory
from seamark.files.location import Location, storage_uri
from seamark.model.errors import CheckpointError, ConfigurationError
from seamark.savepoints.claims import dispose
from seamark.savepoints.take.checkpoint import savepoint_of_checkpoint
from seamark.spark.hadoop_files import open_files
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.spark.savepoints.restore_app import add_clicks, counting_job, counts
from tests.spark.savepoints.test_restore import run_app
from tests.spark.storage.test_hadoop_files import reach
from tests.unit.files.test_location import PATHS

NAME = "a%41b #1?é+;k=v [x] {y} *"


@given(path=PATHS, top=st.sampled_from(["/top", "hdfs://name:8020", "s3a://bucket"]))
@settings(deadline=None)
def test_hadoop_takes_a_location_for_the_same(spark: SparkSession, path: str, top: str) -> None:
    try:
        location = Location.parse(f"{top}/{path}", "a path")
    except ConfigurationError:
        return
    jvm: Any = spark._jvm
    uri = jvm.org.apache.hadoop.fs.Path(location.uri).toUri()
    assert uri.getScheme() == location.scheme
    assert (uri.getAuthority() or "") == location.authority
    assert uri.getPath() == location.path
    assert jvm.org.apache.hadoop.fs.Path(f"{location.uri}/x").toUri().getPath() == (
        f"{location.path}/x" if location.path != "/" else "/x"
    )


def test_a_job_in_an_odd_directory_is_killed_and_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Storage, source, sink, savepoint and the job restored of it: below such a name."""
    name = "a%41b #1?é+;k=v"
    home = tmp_path / name
    for part in range(3):
        add_clicks(home, part * 30)
    run_app(home, "counting", failpoint="decided:2")
    job = counting_job(home, "counting", "shared")
    job.run()
    assert counts(home, "shared") == [10, 20, 30]
    assert [p.name for p in tmp_path.iterdir()] == [name], "no other directory was made"
    logs = [home / "store/counting/spark" / log / "2" for log in ("offsets", "commits")]
    assert all(path.is_file() for path in [*logs, home / "store/counting/epochs/2/committed.json"])
    savepoint = savepoint_of_checkpoint(
        spark, storage_uri(home / "store/counting", "job"), storage_uri(home / "backups/s1", "to")
    )
    assert (home / "backups/s1/savepoint.json").is_file()
    add_clicks(home, 90)
    counting_job(home, "restored", state_backend="rocksdb").run(restore=savepoint.uri)
    assert counts(home, "restored") == [40]
    dispose(savepoint.uri)
    assert list((home / "backups").iterdir()) == []
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_records_that_an_older_version_put_elsewhere_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "aAb/job").mkdir(parents=True)
    (tmp_path / "aAb/job/job.json").write_text("{}")
    directory = tmp_path / "a%41b/job"
    LocalDirectory(directory / "spark").create("offsets/0", b"v1\n")
    with pytest.raises(CheckpointError, match=r"records lie in .*/aAb/job: an older version"):
        require_sound(
            CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))
        )
    assert not (directory / "lease").exists()


@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_odd_names_on_hdfs_and_s3(
    spark: SparkSession, request: pytest.FixtureRequest, store: str
) -> None:
    """Below such a name, each of the two clients reads the other's files."""
    hadoop = HadoopSettings()
    if store == "s3":
        s3: LocalS3 = request.getfixturevalue("s3")
        reach(spark, s3)
        top, hadoop = f"s3a://{s3.bucket}", HadoopSettings.given(s3.spark_settings(), "s3")
    else:
        hdfs: LocalHdfs = request.getfixturevalue("hdfs")
        top = hdfs.uri
    text = f"{top}/{uuid.uuid4().hex}/{NAME}"
    files = open_files(spark, storage_uri(text, "storage"))
    files.create("epochs/1/x", b"1")
    directory = open_directory(shared_uri(text, "path"), hadoop)
    with directory.begin("epochs/2/y") as file:
        file.write(b"22")
    assert directory.tree() == {"epochs/1/x": 1, "epochs/2/y": 2}
    assert files.tree("epochs") == files.tree() == {"epochs/1/x": 1, "epochs/2/y": 2}
    assert files.tree("epochs/1") == {"epochs/1/x": 1}
    assert files.size("epochs/2/y") == directory.size("epochs/2/y") == 2
    assert files.list("epochs") in (["1", "2"], ["2", "1"])
    files.delete("epochs")
    assert directory.tree() == {}


def test_a_locale_in_which_spark_would_use_another_directory_is_refused(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.spark.savepoints.restore_app import *\n"
        "add_clicks(Path(sys.argv[1]), 0)\n"
        "counting_job(Path(sys.argv[1]), 'counting', storage=sys.argv[1] + '/é').run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=os.environ | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert "PreflightError: checkpoint storage " in done.stderr
    assert "set LC_ALL=C.UTF-8" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"], "nothing was made"
