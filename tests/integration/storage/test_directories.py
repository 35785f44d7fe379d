"""`seamark.files` on each store: the promises of a `Directory`, with real servers.

The servers are those of `tests/servers`: HDFS's NameNode and DataNode, S3Proxy, fake-gcs-server and
Azurite. A dying writer is a child process, killing itself.
"""

from __future__ import annotations

import json
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

from seamark.checkpoint.executions import ExecutionEnd, ExecutionStart, ExecutionStore
from seamark.checkpoint.storage_check import check_storage
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import SinkContext
from seamark.files import HadoopSettings, RowDirectory, open_directory
from seamark.files.s3 import PART_BYTES, S3Directory
from seamark.model.errors import PreflightError
from seamark.model.job_state import JobState
from seamark.model.schema import Column
from seamark.sinks.files import FileSink
from seamark.sinks.files.formats import Format
from seamark.sinks.files.read_back import read as read_back
from tests.servers.azurite import AzuriteServer
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.storage_servers import spark_configuration

NOT_USED: Any = None
NAMES = ("1 =%20.json", "2.json", ".hidden", "deep/er")


@pytest.fixture(params=["local", "hdfs", "s3", "gcs", "azure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, HadoopSettings]:
    unique = f"tests/{uuid.uuid4().hex}"
    if request.param == "hdfs":
        hdfs: LocalHdfs = request.getfixturevalue("hdfs")
        return f"{hdfs.uri}/{unique}", HadoopSettings()
    if request.param == "s3":
        s3: LocalS3 = request.getfixturevalue("s3")
        return f"s3a://{s3.bucket}/{unique}", settings(s3)
    if request.param in ("gcs", "azure"):
        server: GcsServer | AzuriteServer = request.getfixturevalue(request.param)
        return server.uri(unique), settings(server)
    return str(tmp_path / "shared"), HadoopSettings()


def settings(server: LocalS3 | GcsServer | AzuriteServer) -> HadoopSettings:
    is_s3 = isinstance(server, LocalS3)
    given = server.spark_settings() if is_s3 else server.row_settings()
    return HadoopSettings.given(given, "the server")


@pytest.fixture
def directory(place: tuple[str, HadoopSettings]) -> RowDirectory:
    return open_directory(*place)


def put(directory: RowDirectory, path: str, data: bytes) -> None:
    with directory.begin(path) as file:
        file.write(data)


def read(directory: RowDirectory, path: str) -> bytes:
    with directory.open(path) as file:
        return file.read()


@pytest.mark.parametrize(
    "format_", [Format("parquet", "zstd"), Format("json", "gzip"), Format("csv", "gzip")]
)
def test_an_audit_reads_the_rows_of_a_file_sink(directory: RowDirectory, format_: Format) -> None:
    rows = pa.record_batch({"id": pa.array(range(5000), pa.int64())})
    schema = pa.schema([("value", pa.string())]) if format_.name == "json" else rows.schema
    if format_.name == "json":
        rows = pa.record_batch({"value": [f'{{"id":{n}}}' for n in range(5000)]})
    path = f"part.{format_.extension}"
    with directory.begin(path) as file:
        encoder = format_.encoder(file, schema)
        encoder.write(rows)
        encoder.close()
    asked = ReadBack(NOT_USED, schema, [])
    found = pa.Table.from_batches(part.rows for part in read_back(directory, format_, asked))
    assert found == pa.Table.from_batches([rows])


@pytest.mark.parametrize("place", ["local", "hdfs", "s3"], indirect=True)
def test_a_changed_program_into_files_is_refused(place: tuple[str, HadoopSettings]) -> None:
    uri, given = place
    context = SinkContext("job", "job", "out", 1, 5.0, (Column("id", "int"),), given)

    def start(sink: FileSink) -> None:
        sink.create_committer(context).preflight()

    start(FileSink(uri))
    start(FileSink(uri))
    (record,) = open_directory(uri, given).tree("_seamark/layout")
    with pytest.raises(PreflightError, match=f"plain parquet files, .* delete .*{record}"):
        start(FileSink(uri, "json"))
    assert list(open_directory(uri, given).tree("_seamark/layout")) == [record]
    # Without a record the names of the files tell.
    open_directory(uri, given).remove(record)
    put(open_directory(uri, given), "part-0.parquet", b"")
    with pytest.raises(PreflightError, match="plain parquet files"):
        start(FileSink(uri, "json"))


def test_files_are_written_read_listed_and_deleted(directory: RowDirectory) -> None:
    assert directory.tree() == {}
    assert directory.tree("none/here") == {}
    assert directory.size("a/one") is None
    put(directory, "a/one", b"1")
    put(directory, "a/b=%20 c/two", b"22")
    put(directory, "ab/three", b"")
    assert directory.tree() == {"a/one": 1, "a/b=%20 c/two": 2, "ab/three": 0}
    assert directory.tree("a") == {"a/one": 1, "a/b=%20 c/two": 2}
    assert read(directory, "a/b=%20 c/two") == b"22"
    assert read(directory, "ab/three") == b""
    assert directory.size("a/one") == 1
    directory.remove("a/one")
    directory.remove("a/one")
    assert directory.size("a/one") is None
    assert directory.tree("a") == {"a/b=%20 c/two": 2}
    with pytest.raises(FileNotFoundError, match="a/one"):
        read(directory, "a/one")


def test_a_record_is_created_once_and_whole(directory: RowDirectory) -> None:
    assert directory.list("lease") == []
    assert not directory.exists("") and not directory.exists("lease")
    data = bytes(range(256)) * 10
    directory.create("lease/1 =%20.json", data)
    directory.create("lease/2.json", b"")
    directory.create("lease/.hidden", b"x")
    with pytest.raises(FileExistsError, match=r"lease/2\.json"):
        directory.create("lease/2.json", b"second")
    assert directory.read("lease/1 =%20.json") == data
    assert directory.read("lease/2.json") == b""
    with pytest.raises(FileNotFoundError):
        directory.read("lease/3.json")
    assert directory.check("lease/1 =%20.json") == directory.size("lease/1 =%20.json") == len(data)
    assert directory.exists("lease/2.json") and directory.exists("lease") and directory.exists("")
    directory.create("lease/deep/er", b"1")
    assert sorted(directory.list("lease")) == ["1 =%20.json", "2.json", "deep"]
    assert directory.list("") == ["lease"]
    assert set(directory.tree()) == {f"lease/{name}" for name in NAMES}
    directory.remove_empty()
    assert len(directory.tree()) == len(NAMES)
    for _ in range(2):
        directory.delete("lease/2.json")
        directory.delete("lease/deep")
    assert directory.list("lease") == ["1 =%20.json"]
    for name in list(directory.tree()):
        directory.remove(name)
    directory.remove_empty()
    assert not directory.exists("")
    directory.create("x", b"x")
    directory.delete("")
    assert directory.tree() == {}


def test_each_store_is_fit_for_checkpoints(directory: RowDirectory) -> None:
    """Of eight that create one file at once exactly one wins, over and over."""
    for _ in range(10):
        check_storage(directory)
    assert directory.list("") == []


def test_a_create_whose_answer_was_lost_is_its_makers(
    s3: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = S3Directory(f"s3a://{s3.bucket}/tests/{uuid.uuid4().hex}", settings(s3))
    call, answers = S3Directory._call, [True, True]

    def repeated(self: S3Directory, path: str, operation: str, **arguments: Any) -> Any:
        if operation == "put_object" and answers.pop():  # as the client does, after a time-out
            call(self, path, operation, **arguments)
        return call(self, path, operation, **arguments)

    monkeypatch.setattr(S3Directory, "_call", repeated)
    directory.create("x", b"mine")
    with pytest.raises(FileExistsError):
        directory.create("x", b"another's")
    assert directory.read("x") == b"mine"


@pytest.mark.parametrize("store", ["s3a", "hdfs"])
def test_a_storage_is_read_without_java(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: Any = request.getfixturevalue({"s3a": "s3", "hdfs": "hdfs"}[store])
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    given = HadoopSettings()
    storage = f"{server.uri}/{uuid.uuid4().hex}" if store == "hdfs" else ""
    if not storage:
        storage, given = f"s3a://{server.bucket}/{uuid.uuid4().hex}", settings(server)
        environment |= spark_configuration(tmp_path / "conf", server)
    files = open_directory(f"{storage}/clicks", given)
    identity = JobIdentity("abcd1" + "0" * 27, "e" * 32, "clicks", 8, 1000.0, None)
    CheckpointStore(files, open_directory(f"{storage}/clicks/spark", given)).create_identity(
        identity
    )
    start = ExecutionStart(identity.job_id, "clicks", "far.example", 1, 1000.0, "")
    executions = ExecutionStore(files)
    executions.end(executions.begin(start), ExecutionEnd(JobState.FINISHED, 1060.0))
    (job,) = run("list", "--all", storage=storage, environment=environment)
    assert (job["name"], job["state"]) == ("clicks", "FINISHED")
    assert run("info", "clicks", storage=storage, environment=environment)["name"] == "clicks"


def run(*command: str, storage: str, environment: dict[str, str]) -> Any:
    """Return what a verb of the command line prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", *command, "--storage", storage, "--json"],
        capture_output=True, timeout=300, env=environment, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_large_files_are_written_in_pieces(directory: RowDirectory) -> None:
    piece = os.urandom(PART_BYTES // 2 + 1)
    with directory.begin("large") as file:
        for _ in range(3):
            assert file.write(memoryview(piece)) == len(piece)
    assert read(directory, "large") == piece * 3
    with directory.open("large") as file:  # by pieces too
        assert file.read(10) == piece[:10]
        assert file.read(10) == piece[10:20]


def test_arrow_writes_into_a_file_and_reads_out_of_it(directory: RowDirectory) -> None:
    batch = pa.record_batch({"n": list(range(1000))})
    with (
        directory.begin("rows.arrows") as file,
        pa.ipc.new_stream(file, batch.schema) as stream,
    ):
        stream.write_batch(batch)
    with directory.open("rows.arrows") as file, pa.ipc.open_stream(file) as rows:
        assert rows.read_all().to_batches() == [batch]


def test_a_file_that_is_given_up_is_not_there(directory: RowDirectory) -> None:
    with pytest.raises(ZeroDivisionError), directory.begin("x/failed") as file:
        file.write(b"x" * (PART_BYTES + 1))
        raise ZeroDivisionError
    closed = directory.begin("x/closed")
    closed.write(b"x")
    closed.close()
    closed.close()
    assert closed.closed
    closed.discard()
    assert directory.tree() == {}


def test_what_was_closed_survives_kill_9_of_its_writer(place: Any, directory: RowDirectory) -> None:
    program = (
        "import os, pickle, sys\n"
        "from seamark.files import open_directory\n"
        "directory = open_directory(*pickle.load(sys.stdin.buffer))\n"
        "with directory.begin('done') as file: file.write(b'done')\n"
        "file = directory.begin('torn')\n"
        "file.write(b'torn')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(place), capture_output=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert read(directory, "done") == b"done"
    left = directory.tree()
    assert left.pop("done") == 4
    assert set(left) <= {"torn"}
    directory.remove("torn")
    assert directory.tree() == {"done": 4}


def test_a_rename_happens_once(place: tuple[str, HadoopSettings], directory: Any) -> None:
    if "@" in place[0] or place[0].startswith(("s3a:", "gs:")):
        assert not hasattr(directory, "rename")  # object stores have none: a copy is not one step
        return
    put(directory, "pending/k=1/x", b"x")
    put(directory, "pending/k=1/y", b"y")
    directory.rename("pending/k=1/x", "k=1/x")
    directory.sync(["pending/k=1/x", "k=1/x"])
    directory.prune("pending/k=1/x", below="pending")
    assert directory.tree() == {"k=1/x": 1, "pending/k=1/y": 1}
    with pytest.raises(FileNotFoundError):
        directory.rename("pending/k=1/x", "k=1/x")
    directory.remove("pending/k=1/y")
    directory.prune("pending/k=1/y", below="pending")
    directory.prune("pending/k=1/y", below="pending")
    directory.sync(["pending/k=1/y"])
    put(directory, "pending/k=1/z", b"z")  # the directory is made anew
    assert directory.tree() == {"k=1/x": 1, "pending/k=1/z": 1}


def test_a_name_that_is_taken_is_refused(
    place: tuple[str, HadoopSettings], directory: RowDirectory
) -> None:
    if "@" in place[0] or place[0].startswith(("s3a:", "gs:")):
        return
    put(directory, "x", b"1")
    with pytest.raises(FileExistsError):
        directory.begin("x")
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
        with pytest.raises(OSError, match=uri), directory.begin("y") as file:
            file.write(b"y")


def test_keys_that_are_wrong_raise_permission_error_without_showing_them(s3: LocalS3) -> None:
    prefix = f"fs.s3a.bucket.{s3.bucket}"
    wrong = settings(s3).under({f"{prefix}.secret.key": "wr0ng-s3cr3t"})
    with pytest.raises(PermissionError) as caught:
        open_directory(f"s3a://{s3.bucket}/x", wrong).tree()
    assert "wr0ng-s3cr3t" not in str(caught.value)


def test_a_name_node_that_is_silent_fails_a_call_in_time(
    hdfs: LocalHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.files.hdfs.CALL_DEADLINE_S", 1.0)
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
    assert directory.tree() == {}
    found = {(f.path, f.upload_id) for f in directory.uploads()}
    assert found == {("k=1/x", upload.upload_id), ("k=1/y", other.upload_id)}
    directory.complete_upload("k=1/x", upload.upload_id, etags)
    directory.abort_upload("k=1/y", other.upload_id)
    directory.abort_upload("k=1/y", other.upload_id)
    assert directory.tree() == {"k=1/x": len(data)}
    assert read(directory, "k=1/x") == data
    assert list(directory.uploads()) == []
    with pytest.raises(FileNotFoundError):
        directory.complete_upload("k=1/y", other.upload_id, other.etags)


def test_an_upload_at_a_buckets_root_is_found(s3: LocalS3) -> None:
    name, directory = f"tests/{uuid.uuid4().hex}", S3Directory(f"s3a://{s3.bucket}", settings(s3))
    upload = directory.begin_upload(name)
    assert (name, upload.upload_id) in {(f.path, f.upload_id) for f in directory.uploads()}
    directory.abort_upload(name, upload.upload_id)


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
