"""URIs and settings of file systems: the refusals, and no secret is shown; no I/O."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.file_systems import HadoopSettings, open_directory, shared_uri
from seamark.file_systems.s3_options import S3Options
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
        ("gs://bucket/x", "scheme 'gs'.*give a local path, or a URI with 'file:', 'hdfs:'"),
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
