"""What a job needs on this machine, each tried out: `seamark doctor`."""

import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from seamark.checkpoint.storage_check import check_storage
from seamark.dev.java_server import free_ports
from seamark.files.deadline import open_local
from seamark.files.location import local_of
from seamark.model.errors import OperationFailedError, SeamarkError
from seamark.model.packages import install_command, spec_of
from seamark.operations.storage import storage_of
from seamark.sources.kafka_log import KafkaLog
from seamark.spark import jars

MOST_SKEW_S = 5.0
"""Event times, watermarks and the age of a transaction are read off several machines' clocks."""
_DRIVERS = {
    "kafka": "confluent_kafka",
    "postgres": "psycopg",
    "mysql": "pymysql",
    "redis": "redis",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
}


@dataclass(frozen=True)
class Check:
    """One thing tried out. `missing`: a job cannot run, or not with what was asked about."""

    name: str
    missing: bool
    found: str
    remedy: str = ""


def examine(storage: str | None, servers: str | None) -> Iterator[Check]:
    """Yield each check when it is done; nothing stays behind but fetched jars.

    storage: a URI, tried as a job's start tries it; None for the usual one.
    servers: Kafka's brokers; None asks none.
    """
    uri = storage_of(storage)  # mistakes first
    yield _tried("Java", lambda: str(jars.find_java()))
    yield _tried("PySpark", _pyspark)
    yield _tried("Kafka connector", _connector)
    yield _drivers()
    yield _tried("ports", _loopback)
    yield _tried("storage", lambda: _storage(uri))
    yield _clock(uri)
    if servers is None:
        yield Check("brokers", False, "not asked", "ask some: --bootstrap-servers HOST:PORT")
    else:
        yield _tried("brokers", lambda: _brokers(servers))


def _tried(name: str, try_out: Callable[[], str]) -> Check:
    """A SeamarkError says the fault, a semicolon, the remedy; or the fault, a colon, `pip`'s."""
    try:
        return Check(name, False, try_out())
    except SeamarkError as error:
        said = re.split(r"; |: (?=pip )", " ".join(str(error).split()), maxsplit=1)
        return Check(name, True, said[0], "".join(said[1:]))


def _pyspark() -> str:
    jars.require_pyspark()
    return f"{jars.spark_version()}, on Python {sys.version.split()[0]}"


def _connector() -> str:
    names = [path.name for path in jars.spark_kafka_jars()]
    return next(name for name in names if name.startswith("spark-sql-kafka"))


def _drivers() -> Check:
    there = [extra for extra, module in _DRIVERS.items() if spec_of(module) is not None]
    absent = [extra for extra in _DRIVERS if extra not in there]
    remedy = f"as needed: {install_command(','.join(absent))}" if absent else ""
    return Check("drivers", False, f"installed for {', '.join(there) or 'no system'}", remedy)


def _loopback() -> str:
    (port,) = free_ports(1)
    try:
        with socket.create_server(("127.0.0.1", port)), socket.socket() as client:
            client.settimeout(5)
            client.connect(("127.0.0.1", port))
    except OSError as error:
        raise OperationFailedError(
            f"127.0.0.1 does not answer itself ({error}); let this user connect to ports of "
            "127.0.0.1: Spark and its Python workers talk there"
        ) from None
    return "127.0.0.1 answers"


def _storage(uri: str) -> str:
    missing = [path for path in _way_to(uri) if not os.access(path, os.F_OK)]
    try:
        if local := local_of(uri):
            check_storage(open_local(local))
        else:
            from seamark.spark.hadoop_files import open_files  # imports PySpark
            from seamark.spark.session import spark_session

            jars.require_pyspark()
            check_storage(open_files(spark_session("seamark"), uri))  # as a driver does
    finally:
        for path in missing:  # made by the trial
            with suppress(OSError):
                path.rmdir()
    return f"{uri}, one of several creators of a file wins"


def _clock(uri: str) -> Check:
    """A local or mounted directory tells its own clock by the times of its files."""
    try:
        there = next(path for path in _way_to(uri) if path.is_dir())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"now")
            file.flush()
            skew_s = os.fstat(file.fileno()).st_mtime - time.time()
    except (StopIteration, OSError):
        return Check(
            "clock", False, "the storage's is not known", "compare date -u on all machines"
        )
    found = f"the storage's is {skew_s:+.1f} s off this machine's"
    if abs(skew_s) <= MOST_SKEW_S:
        return Check("clock", False, found)
    return Check("clock", True, found, "set both by NTP: chronyc tracking, timedatectl")


def _way_to(uri: str) -> list[Path]:
    """Return a local directory and those above it, from below; [] for another storage."""
    local = local_of(uri)
    return [Path(local), *Path(local).parents] if local else []


def _brokers(servers: str) -> str:
    remedy = (
        "start them, or correct --bootstrap-servers; `seamark dev kafka --port 9092` starts one"
    )
    with closing(KafkaLog(servers, None, 10.0, remedy)) as log:
        brokers, topics = log.cluster()
    return f"{brokers} at {servers}, with {topics} topics"
