"""`seamark.file_systems` on each store: the promises of a `Directory`, with real servers.

HDFS is the NameNode and DataNode of `tests/servers/hdfs.py`, S3 the server of
`tests/servers/s3.py`. A dying writer is a child process, killing itself.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from seamark.contracts.read_back import ReadBack
from seamark.file_systems import Directory, HadoopSettings, open_directory
from seamark.file_systems.s3 import PART_BYTES, S3Directory
from seamark.sinks.files.formats import Format
from seamark.sinks.files.read_back import read as read_back
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3

NOT_USED: Any = None


@pytest.fixture(params=["local", "hdfs", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, HadoopSettings]:
    unique = f"tests/{uuid.uuid4().hex}"
    if request.param == "hdfs":
        hdfs: LocalHdfs = request.getfixturevalue("hdfs")
        return f"{hdfs.uri}/{unique}", HadoopSettings()
    if request.param == "s3":
        s3: LocalS3 = request.getfixturevalue("s3")
        return f"s3a://{s3.bucket}/{unique}", settings(s3)
    return str(tmp_path / "shared"), HadoopSettings()


def settings(s3: LocalS3) -> HadoopSettings:
    return HadoopSettings.given(s3.spark_settings(), "s3")


@pytest.fixture
def directory(place: tuple[str, HadoopSettings]) -> Directory:
    return open_directory(*place)


def put(directory: Directory, path: str, data: bytes) -> None:
    with directory.create(path) as file:
        file.write(data)


def read(directory: Directory, path: str) -> bytes:
    with directory.open(path) as file:
        return file.read()


@pytest.mark.parametrize(
    "format_", [Format("parquet", "zstd"), Format("json", "gzip"), Format("csv", "gzip")]
)
def test_an_audit_reads_the_rows_of_a_file_sink(directory: Directory, format_: Format) -> None:
    rows = pa.record_batch({"id": pa.array(range(5000), pa.int64())})
    schema = pa.schema([("value", pa.string())]) if format_.name == "json" else rows.schema
    if format_.name == "json":
        rows = pa.record_batch({"value": [f'{{"id":{n}}}' for n in range(5000)]})
    path = f"part.{format_.extension}"
    with directory.create(path) as file:
        encoder = format_.encoder(file, schema)
        encoder.write(rows)
        encoder.close()
    asked = ReadBack(NOT_USED, schema, [])
    found = pa.Table.from_batches(part.rows for part in read_back(directory, format_, asked))
    assert found == pa.Table.from_batches([rows])


def test_files_are_written_read_listed_and_deleted(directory: Directory) -> None:
    assert directory.list() == {}
    assert directory.list("none/here") == {}
    assert directory.size("a/one") is None
    put(directory, "a/one", b"1")
    put(directory, "a/b=%20 c/two", b"22")
    put(directory, "ab/three", b"")
    assert directory.list() == {"a/one": 1, "a/b=%20 c/two": 2, "ab/three": 0}
    assert directory.list("a") == {"a/one": 1, "a/b=%20 c/two": 2}
    assert read(directory, "a/b=%20 c/two") == b"22"
    assert read(directory, "ab/three") == b""
    assert directory.size("a/one") == 1
    directory.delete("a/one")
    directory.delete("a/one")
    assert directory.size("a/one") is None
    assert directory.list("a") == {"a/b=%20 c/two": 2}
    with pytest.raises(FileNotFoundError, match="a/one"):
        read(directory, "a/one")


def test_large_files_are_written_in_pieces(directory: Directory) -> None:
    piece = os.urandom(PART_BYTES // 2 + 1)
    with directory.create("large") as file:
        for _ in range(3):
            assert file.write(memoryview(piece)) == len(piece)
    assert read(directory, "large") == piece * 3
    with directory.open("large") as file:  # by pieces too
        assert file.read(10) == piece[:10]
        assert file.read(10) == piece[10:20]


def test_arrow_writes_into_a_file_and_reads_out_of_it(directory: Directory) -> None:
    batch = pa.record_batch({"n": list(range(1000))})
    with (
        directory.create("rows.arrows") as file,
        pa.ipc.new_stream(file, batch.schema) as stream,
    ):
        stream.write_batch(batch)
    with directory.open("rows.arrows") as file, pa.ipc.open_stream(file) as rows:
        assert rows.read_all().to_batches() == [batch]


def test_a_file_that_is_given_up_is_not_there(directory: Directory) -> None:
    with pytest.raises(ZeroDivisionError), directory.create("x/failed") as file:
        file.write(b"x" * (PART_BYTES + 1))
        raise ZeroDivisionError
    closed = directory.create("x/closed")
    closed.write(b"x")
    closed.close()
    closed.close()
    assert closed.closed
    closed.discard()
    assert directory.list() == {}


def test_what_was_closed_survives_kill_9_of_its_writer(place: Any, directory: Directory) -> None:
    program = (
        "import os, pickle, sys\n"
        "from seamark.file_systems import open_directory\n"
        "directory = open_directory(*pickle.load(sys.stdin.buffer))\n"
        "with directory.create('done') as file: file.write(b'done')\n"
        "file = directory.create('torn')\n"
        "file.write(b'torn')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(place), capture_output=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert read(directory, "done") == b"done"
    left = directory.list()
    assert left.pop("done") == 4
    assert set(left) <= {"torn"}
    directory.delete("torn")
    assert directory.list() == {"done": 4}


def test_a_rename_happens_once(place: tuple[str, HadoopSettings], directory: Any) -> None:
    if place[0].startswith("s3a:"):
        assert not hasattr(directory, "rename")  # S3 has none: a copy is not one step
        return
    put(directory, "pending/k=1/x", b"x")
    put(directory, "pending/k=1/y", b"y")
    directory.rename("pending/k=1/x", "k=1/x")
    directory.sync(["pending/k=1/x", "k=1/x"])
    directory.prune("pending/k=1/x", below="pending")
    assert directory.list() == {"k=1/x": 1, "pending/k=1/y": 1}
    with pytest.raises(FileNotFoundError):
        directory.rename("pending/k=1/x", "k=1/x")
    directory.delete("pending/k=1/y")
    directory.prune("pending/k=1/y", below="pending")
    directory.prune("pending/k=1/y", below="pending")
    directory.sync(["pending/k=1/y"])
    put(directory, "pending/k=1/z", b"z")  # the directory is made anew
    assert directory.list() == {"k=1/x": 1, "pending/k=1/z": 1}


def test_a_name_that_is_taken_is_refused(
    place: tuple[str, HadoopSettings], directory: Directory
) -> None:
    if place[0].startswith("s3a:"):
        return
    put(directory, "x", b"1")
    with pytest.raises(FileExistsError):
        directory.create("x")
    assert read(directory, "x") == b"1"


def test_a_store_that_is_away_raises_os_error() -> None:
    away = HadoopSettings(
        {
            "fs.s3a.endpoint": "http://127.0.0.1:9",
            "fs.s3a.access.key": "a",
            "fs.s3a.secret.key": "b",
            "fs.s3a.endpoint.region": "us-east-1",
        }
    )
    for uri in ("s3a://bucket/x", "hdfs://127.0.0.1:9/x"):
        directory = open_directory(uri, away)
        with pytest.raises(OSError, match=uri):
            directory.size("y")
        with pytest.raises(OSError, match=uri), directory.create("y") as file:
            file.write(b"y")


def test_keys_that_are_wrong_raise_permission_error_without_showing_them(s3: LocalS3) -> None:
    prefix = f"fs.s3a.bucket.{s3.bucket}"
    wrong = settings(s3).under({f"{prefix}.secret.key": "wr0ng-s3cr3t"})
    with pytest.raises(PermissionError) as caught:
        open_directory(f"s3a://{s3.bucket}/x", wrong).list()
    assert "wr0ng-s3cr3t" not in str(caught.value)


def test_a_name_node_that_is_silent_fails_a_call_in_time(
    hdfs: LocalHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.file_systems.hdfs.CALL_DEADLINE_S", 1.0)
    directory = open_directory(f"{hdfs.uri}/tests/{uuid.uuid4().hex}")
    put(directory, "x", b"x")
    name_node = psutil.Process(hdfs.pid("namenode"))
    name_node.suspend()
    try:
        while name_node.status() != psutil.STATUS_STOPPED:  # it may answer one more question
            time.sleep(0.01)
        with pytest.raises(OSError, match="has not answered"):
            directory.size("x")
    finally:
        name_node.resume()
    monkeypatch.undo()
    assert directory.size("x") == 1


def test_permissions_of_hdfs_hold(hdfs: LocalHdfs) -> None:
    path = f"/tests/{uuid.uuid4().hex}"
    hdfs.webhdfs("PUT", path, "MKDIRS", permission="700")
    with pytest.raises(PermissionError, match=path):
        put(open_directory(f"{hdfs.uri}{path}"), "x", b"x")


def test_an_upload_shows_nothing_until_it_is_completed(s3: LocalS3) -> None:
    directory = S3Directory(f"s3a://{s3.bucket}/tests/{uuid.uuid4().hex}", settings(s3))
    data = os.urandom(PART_BYTES + 1)
    upload, other = directory.begin_upload("k=1/x"), directory.begin_upload("k=1/y")
    for one in (upload, other):
        one.write(data)
    etags = list(upload.finish())
    assert len(etags) == 2
    assert directory.list() == {}
    found = {(f.path, f.upload_id) for f in directory.uploads()}
    assert found == {("k=1/x", upload.upload_id), ("k=1/y", other.upload_id)}
    directory.complete_upload("k=1/x", upload.upload_id, etags)
    directory.abort_upload("k=1/y", other.upload_id)
    directory.abort_upload("k=1/y", other.upload_id)
    assert directory.list() == {"k=1/x": len(data)}
    assert read(directory, "k=1/x") == data
    assert list(directory.uploads()) == []
    with pytest.raises(FileNotFoundError):
        directory.complete_upload("k=1/y", other.upload_id, other.etags)


def test_an_upload_whose_completions_answer_was_lost_is_whole(
    s3: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = S3Directory(f"s3a://{s3.bucket}/{uuid.uuid4().hex}", settings(s3))
    complete, data = S3Directory.complete_upload, b"x" * (PART_BYTES + 5)

    def repeated(self: S3Directory, *asked: Any) -> None:
        complete(self, *asked)
        raise FileNotFoundError("stores of this protocol differ in what they say of a repetition")

    monkeypatch.setattr(S3Directory, "complete_upload", repeated)
    put(directory, "large", data)
    assert read(directory, "large") == data

    def aborted(self: S3Directory, path: str, upload_id: str, etags: Any) -> None:
        self.abort_upload(path, upload_id)
        complete(self, path, upload_id, etags)

    monkeypatch.setattr(S3Directory, "complete_upload", aborted)
    with pytest.raises(FileNotFoundError):
        put(directory, "aborted", data)
