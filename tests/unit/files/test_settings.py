"""URIs and settings of file systems: the refusals, and no secret is shown; no I/O."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path

import pytest

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.files import HadoopSettings, open_directory, open_without_spark, shared_uri
from seamark.files.s3_options import S3Options
from seamark.model.errors import ConfigurationError

SECRET = "s3cr3t-k3y"
SETTINGS = HadoopSettings(
    {
        "fs.s3a.endpoint": "store.example:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": "for-all",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.bucket.logs.access.key": "for-logs",
        "fs.s3a.bucket.logs.endpoint": "https://logs.example",
        "fs.s3a.bucket.logs.path.style.access": "true",
    }
)


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("/data/out/", "/data/out"),
        (Path("/data/out"), "/data/out"),
        ("/data/with%20space", "/data/with%20space"),
        ("file:///data/with space#1?", "/data/with space#1?"),
        ("hdfs://namenode:8020/data/out/", "hdfs://namenode:8020/data/out"),
        ("HDFS://nameservice/data", "hdfs://nameservice/data"),
        ("hdfs:///data", "hdfs:///data"),
        ("s3a://bucket/a b/c#d?e", "s3a://bucket/a b/c#d?e"),
        ("s3://bucket/x", "s3://bucket/x"),
    ],
)
def test_uris(given: object, uri: str) -> None:
    assert shared_uri(given, "FileSink: path") == uri


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ofs://bucket/x", "scheme 'ofs'.*give a local path, or a URI with 'file:', 'hdfs:'"),
        ("s3n://bucket/x", "scheme 's3n'"),
        ("s3a:///x", "names no bucket"),
        ("s3a://bucket/", "names no directory"),
        ("hdfs://namenode", "names no directory"),
        ("s3a://bucket/a/../b", "without '.', '..'"),
        ("file://host/x", "where a file URI has its host"),
        ("file:///data/with%20space", "write the path alone: '/data/with space', or"),
        ("s3a://bucket/a//b", "doubled slashes"),
        ("", "give a local path"),
        (7, "give a local path"),
    ],
)
def test_uris_that_are_refused(given: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^FileSink: path .*{says}"):
        shared_uri(given, "FileSink: path")


def test_a_uri_with_a_key_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match=r"fs\.s3a\.access\.key") as caught:
        shared_uri(f"s3a://AKIA:{SECRET}@bucket/x", "FileSink: path")
    assert SECRET not in str(caught.value)


def test_options_of_a_bucket_go_over_those_of_all() -> None:
    everything = S3Options.of("other", SETTINGS)
    assert everything.endpoint == "http://store.example:9000"
    assert (everything.access_key, everything.secret_key) == ("for-all", SECRET)
    assert not everything.path_style
    logs = S3Options.of("logs", SETTINGS)
    assert logs.endpoint == "https://logs.example"
    assert (logs.access_key, logs.secret_key, logs.path_style) == ("for-logs", SECRET, True)


def test_an_encryption_that_only_s3a_can_do_is_refused() -> None:
    kms = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "key-1"}
    assert S3Options.of("b", HadoopSettings(kms)).encryption == "aws:kms"
    with pytest.raises(ConfigurationError, match=r"bucket 'b'.*algorithm is 'CSE-KMS'.*'SSE-KMS'"):
        S3Options.of("b", HadoopSettings({"fs.s3a.encryption.algorithm": "CSE-KMS"}))


def test_nothing_that_carries_settings_shows_a_secret() -> None:
    shown = [
        SETTINGS,
        S3Options.of("logs", SETTINGS),
        SinkContext("job", "job", "out", 1, 5.0, hadoop=SETTINGS),
        WriterContext("job", "out", 1, 0, 0, 0, -1, hadoop=SETTINGS),
        open_directory("s3a://logs/x", SETTINGS),
    ]
    for value in shown:
        assert SECRET not in repr(value)
        assert SECRET not in str(value)
    assert pickle.loads(pickle.dumps(SETTINGS)) == SETTINGS
    assert hash(pickle.loads(pickle.dumps(SETTINGS))) == hash(SETTINGS)


def test_settings_that_are_no_settings_are_refused_without_their_values() -> None:
    with pytest.raises(ConfigurationError, match="FileSink: hadoop is a dict; give a dict of") as e:
        HadoopSettings.given({"fs.s3a.secret.key": SECRET.encode()}, "FileSink: hadoop")
    assert SECRET not in str(e.value)
    given = HadoopSettings.given({"spark.hadoop.fs.s3a.endpoint": "x"}, "FileSink: hadoop")
    assert dict(SETTINGS.under(given))["fs.s3a.endpoint"] == "x"
    assert len(SETTINGS.under(given)) == len(SETTINGS)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process with HADOOP_CONF_DIR and SPARK_CONF_DIR."""
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_without_a_jvm_the_settings_come_from_the_files_and_arguments_of_spark(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HadoopSettings.of_environment() == HadoopSettings()
    for file, name, value in (
        ("core-site.xml", "fs.s3a.endpoint", "core"), ("core-site.xml", "fs.defaultFS", "hdfs://nn"),
        ("hdfs-site.xml", "dfs.nameservices", "one"),
    ):  # fmt: skip
        entry = f"<property><name>{name}</name><value>{value}</value></property></configuration>"
        path = environment / file
        before = path.read_text() if path.exists() else "<configuration></configuration>"
        path.write_text(before.replace("</configuration>", entry))
    defaults = "# spark.hadoop.fs.s3a.region no\n\nspark.master local\n"
    defaults += "spark.hadoop.fs.s3a.endpoint = conf\n"
    (environment / "spark-defaults.conf").write_text(
        defaults + "spark.hadoop.fs.s3a.access.key\ta=b "
    )
    found = {
        "fs.s3a.endpoint": "conf", "fs.defaultFS": "hdfs://nn", "dfs.nameservices": "one",
        "fs.s3a.access.key": "a=b",
    }  # fmt: skip
    assert HadoopSettings.of_environment() == found
    given = "--conf spark.hadoop.fs.s3a.endpoint=args --conf 'spark.hadoop.fs.s3a.secret.key=c d'"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master local {given} pyspark-shell")
    found |= {"fs.s3a.endpoint": "args", "fs.s3a.secret.key": "c d"}
    assert HadoopSettings.of_environment() == found
    (environment / "own.conf").write_text("spark.hadoop.fs.s3a.endpoint:own")
    own = shlex.quote(str(environment / "own.conf"))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {own} pyspark-shell")
    alone = {"fs.s3a.endpoint": "own", "fs.defaultFS": "hdfs://nn", "dfs.nameservices": "one"}
    assert HadoopSettings.of_environment() == alone
    (environment / "core-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigurationError, match=r"cannot be read"):
        HadoopSettings.of_environment()


@pytest.mark.parametrize(
    ("name", "value", "spark"),
    [
        ("hadoop.security.credential.provider.path", "jceks://file/x", True),
        ("fs.s3a.bucket.b.security.credential.provider.path", "jceks://file/x", True),
        ("fs.s3a.proxy.host", "proxy", True),
        ("fs.s3a.access.key", "${env.KEY}", True),
        ("fs.s3a.aws.credentials.provider", "org.example.OwnProvider", True),
        ("fs.s3a.encryption.algorithm", "SSE-C", True),
        (
            "fs.s3a.aws.credentials.provider",
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider, "
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
            False,
        ),
        ("fs.s3a.access.key", "plain", False),
    ],
)
def test_what_only_a_jvm_can_follow_is_left_to_spark(
    environment: Path, name: str, value: str, spark: bool
) -> None:
    (environment / "spark-defaults.conf").write_text(f"spark.hadoop.{name} {value}")
    assert (open_without_spark("s3a://b/x") is None) == spark
    assert open_without_spark("gs://b/x") is open_without_spark("abfss://c@b/x") is None
