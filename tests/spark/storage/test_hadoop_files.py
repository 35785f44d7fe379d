"""How: the records' file operations on a real NameNode and DataNode, a real S3 server, and a server
with Google's interface."""

from __future__ import annotations

import gc
import socketserver
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seamark.files.local import LocalDirectory
from seamark.model.errors import CorruptRecordError, DamagedCheckpointError
from seamark.savepoints.claims import remove_savepoint
from seamark.savepoints.edit.offsets import write_copy
from seamark.savepoints.record import read_savepoint
from seamark.savepoints.state.copies import copier
from seamark.spark.hadoop_files import HadoopFiles, open_files
from tests.servers.gcs import GcsServer
from tests.servers.s3 import LocalS3
from tests.storage_servers import serving
from tests.unit.savepoints.edit.test_offsets import ROWS, with_files_of
from tests.unit.savepoints.test_claims import with_state
from tests.weak_s3 import Weakness, WeakS3

STORES = ["hdfs", "s3a", "gs"]


def reach(spark: SparkSession, server: LocalS3 | GcsServer, endpoint: str = "") -> None:
    """Let the session reach the bucket; the settings go into every Hadoop configuration."""
    if isinstance(server, GcsServer):
        jvm: Any = spark._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.addURL(jvm.java.io.File(str(server.connector)).toURI().toURL())
        settings = server.spark_settings()
    else:
        settings = server.spark_settings(endpoint)
    for key, value in settings.items():
        spark.conf.set(key.removeprefix("spark.hadoop."), value)


@pytest.fixture
def base(store: str, spark: SparkSession, request: pytest.FixtureRequest) -> str:
    """An empty directory's URI."""
    if store != "hdfs":
        server = request.getfixturevalue({"s3a": "s3", "gs": "gcs"}[store])
        reach(spark, server)
        return f"{store}://{server.bucket}/{uuid.uuid4().hex}"
    return f"{request.getfixturevalue('hdfs').uri}/{uuid.uuid4().hex}"


@pytest.mark.parametrize("store", STORES)
def test_create_read_list_delete(spark: SparkSession, base: str) -> None:
    files = HadoopFiles(spark, base)
    assert files.list("epochs/3") == []
    data = bytes(range(256)) * 10
    files.create("epochs/3/prepared.1.json", data)
    assert files.read("epochs/3/prepared.1.json") == data
    assert files.exists("epochs/3/prepared.1.json")
    assert files.list("epochs/3") == ["prepared.1.json"]
    with pytest.raises(FileExistsError, match=r"epochs/3/prepared\.1\.json"):
        files.create("epochs/3/prepared.1.json", b"second")
    assert files.read("epochs/3/prepared.1.json") == data
    files.create("lease/1.json", b"")
    assert files.read("lease/1.json") == b""
    files.create("epochs/4/.hidden", b"x")
    prepared = {"epochs/3/prepared.1.json": len(data)}
    assert files.tree("epochs") == {**prepared, "epochs/4/.hidden": 1}
    assert files.tree("nowhere") == {}
    assert files.list("epochs/4") == []
    files.create("epochs/4/deep/a b", b"1234")
    deep = {"epochs/4/deep/a b": 4}
    assert files.tree("epochs") == {**prepared, "epochs/4/.hidden": 1, **deep}
    assert files.tree("epochs/4/deep") == deep
    assert files.tree() == {**files.tree("epochs"), "lease/1.json": 0}
    assert files.size("epochs/3/prepared.1.json") == len(data)
    assert files.size("lease/1.json") == 0 and files.size("lease/2.json") is None
    files.delete("epochs/3")
    files.delete("epochs/3")
    assert not files.exists("epochs/3/prepared.1.json")
    assert files.list("epochs/3") == []
    with pytest.raises(FileNotFoundError):
        files.read("epochs/3/prepared.1.json")


@pytest.mark.parametrize("store", STORES)
def test_of_eight_that_create_one_file_exactly_one_wins(spark: SparkSession, base: str) -> None:
    """Each has a client of its own, as if on a machine of its own; a reader looks all the time."""
    racers, turns = 8, 10
    start = threading.Barrier(racers)
    wins: list[tuple[int, int]] = []
    torn: list[bytes] = []
    ended = threading.Event()

    def contend(number: int) -> None:
        files = HadoopFiles(spark, base)
        for turn in range(turns):
            start.wait()
            try:
                files.create(f"lease/{turn}.json", b"%d" % number * 5000)
            except FileExistsError:
                continue
            wins.append((turn, number))

    def watch() -> None:
        files = HadoopFiles(spark, base)
        while not ended.is_set():
            # The S3 server lists its own temporary files, named <key>-<random>, for a moment.
            for name in (n for n in files.list("lease") if n.endswith(".json")):
                content = files.read(f"lease/{name}")
                if len(content) != 5000 or len(set(content)) != 1:
                    torn.append(content)

    threads = [threading.Thread(target=contend, args=(n,)) for n in range(racers)]
    watcher = threading.Thread(target=watch)
    for thread in [*threads, watcher]:
        thread.start()
    for thread in threads:
        thread.join(120)
    ended.set()
    watcher.join(60)
    assert sorted(turn for turn, _ in wins) == list(range(turns))
    assert torn == []
    files = HadoopFiles(spark, base)
    assert sorted(files.list("lease")) == sorted(f"{turn}.json" for turn in range(turns))
    for turn, number in wins:
        assert files.read(f"lease/{turn}.json") == b"%d" % number * 5000


class _CollectsGarbage:
    """The source of py4j's answers; Python collects its garbage in the middle of each call."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        gc.collect()
        return bytes(self._stream.readline())


@pytest.mark.parametrize("store", STORES)
def test_the_end_of_unused_files_takes_no_answer_of_another_call(
    spark: SparkSession, base: str
) -> None:
    """A thread has one connection to Java, and garbage is collected wherever a thread happens to
    be: a call from there would read the answer of the interrupted call."""
    jvm: Any = spark._jvm
    gc.disable()
    try:
        files = HadoopFiles(spark, base)
        files.create("a", b"")
        system, path = files._files, files._path("a")
        unused: list[Any] = [files]
        unused.append(unused)
        del files, unused
        parse = jvm.java.lang.Integer.parseInt
        connection = jvm._gateway_client.get_thread_connection()
        stream = connection.stream
        connection.stream = _CollectsGarbage(stream)
        try:
            answers = [parse(str(number)) for number in range(5)]
        finally:
            connection.stream = stream
    finally:
        gc.enable()
    assert answers == list(range(5))
    deadline_s = time.monotonic() + 30
    with pytest.raises(Py4JJavaError, match=r"(?i)filesystem (is |has been )?closed"):
        while system.exists(path):
            assert time.monotonic() < deadline_s, "it was not closed"
            time.sleep(0.1)


def test_a_write_whose_answer_was_lost_is_known_as_ones_own(spark: SparkSession) -> None:
    """The client writes again, and the answer is a file already there: it is the one it has
    made."""
    for server in serving(lambda: LocalS3(signed=False)):
        with WeakS3(server.port, Weakness.LOSES_REPLY) as weak:
            reach(spark, server, weak.endpoint)
            files = HadoopFiles(spark, f"s3a://{server.bucket}/lost-reply")
            files.create("lease/1.json", b"mine")
            assert weak.replies_lost == 1
            assert files.read("lease/1.json") == b"mine"
            with pytest.raises(FileExistsError):
                files.create("lease/1.json", b"mine")


def test_a_connection_that_breaks_is_no_damage_to_the_file(spark: SparkSession) -> None:
    """Hadoop's client of web servers reads from one that hangs up in the middle."""
    with socketserver.TCPServer(("127.0.0.1", 0), _HangsUp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        files = HadoopFiles(spark, f"http://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(OSError, match="Premature EOF"):
            files.check("commits/3")
        server.shutdown()


def test_a_file_that_differs_from_its_checksum_is_damaged(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = HadoopFiles(spark, tmp_path.as_uri())
    files.create("commits/3", b"whole")
    assert files.check("commits/3") == 5
    (tmp_path / "commits/3").write_bytes(b"while")
    with pytest.raises(CorruptRecordError, match="ChecksumException"):
        files.check("commits/3")


class _HangsUp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline() not in (b"\r\n", b""):
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf")


def test_local_paths_get_local_files(spark: SparkSession, tmp_path: Path) -> None:
    open_files(spark, f"file://{tmp_path}/a%20b").create("c", b"d")
    assert (tmp_path / "a%20b/c").read_bytes() == b"d", "where Spark's own would put it"
    assert LocalDirectory(tmp_path / "a%20b").list("") == ["c"], (
        "Spark's own would leave a .crc file"
    )


@pytest.mark.parametrize("store", STORES)
def test_a_savepoint_is_disposed_of_file_by_file(spark: SparkSession, base: str) -> None:
    whole, other = open_files(spark, f"{base}/whole"), open_files(spark, f"{base}/other")
    for files in (whole, other):
        with_state(files)
        files.create("taking.json", b"")
    foreign = ["state/0/default/.mine", "thesis.txt"]
    for path in foreign:
        other.create(path, b"years of work")
    assert remove_savepoint(whole) == []
    assert whole.tree() == {}
    assert not whole.exists("")
    assert remove_savepoint(other) == foreign
    assert sorted(other.tree()) == foreign
    assert other.list("") in (["state", "thesis.txt"], ["thesis.txt", "state"])
    assert remove_savepoint(open_files(spark, f"{base}/none", make=False)) == []


@pytest.mark.parametrize("store", STORES)
def test_a_savepoint_is_copied_with_other_offsets(
    spark: SparkSession, base: str, tmp_path: Path
) -> None:
    there, back = open_files(spark, f"{base}/copy"), LocalDirectory(tmp_path / "back")
    here = LocalDirectory(tmp_path / "here")
    savepoint = with_files_of(here)
    moved = {"clicks": {"clicks": {"0": 2, "1": 9}}}
    copy = write_copy(savepoint, moved, here, there, copier(here, there, lambda: spark))
    assert read_savepoint(there) == copy
    again = write_copy(copy, {}, there, back, copier(there, back, lambda: spark))
    assert again.sources == copy.sources
    assert again.files == copy.files
    assert back.read(ROWS) == here.read(ROWS)
    log = back.read("spark/offsets/7").split(b"\n")
    assert log == [b"v1", b"{}", b'{"clicks":{"0":2,"1":9}}', b"-"]
    there.delete(ROWS)
    with pytest.raises(DamagedCheckpointError, match=f"{ROWS} is missing, or not as it was"):
        write_copy(
            copy, {}, there, LocalDirectory(tmp_path / "x"), copier(there, back, lambda: spark)
        )
