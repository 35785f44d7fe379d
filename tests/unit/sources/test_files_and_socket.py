"""FileSource and SocketSource: mistakes are refused by name, and settings become Spark's options.

No Spark: its StructType is stood in for by the attributes read here;
tests/spark/sources/test_odd_schemas.py reads files with the real one.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.model.errors import ConfigurationError
from seamark.sources.files import FileSource
from seamark.sources.socket import SocketSource


def test_a_file_source_is_sparks_reader_with_its_schema() -> None:
    source = FileSource(
        Path("/data/clicks"),
        format="json",
        schema="user STRING, at TIMESTAMP",
        options={"maxFilesPerTrigger": 2, "multiLine": False},
    )
    reader = source.reader()
    assert reader.format == "json"
    assert reader.schema == "user STRING, at TIMESTAMP"
    assert reader.options == {
        "path": "/data/clicks", "maxFilesPerTrigger": "2", "multiLine": "false",
        "maxFileAge": "36500d",
    }  # fmt: skip
    assert source.replayable
    assert not source.bounded
    assert source.describe() == "json files in /data/clicks"
    assert FileSource("/data", "json", "a INT", ending="latest").bounded


def test_an_age_of_files_is_sparks_to_judge() -> None:
    options = FileSource("/data", "text", options={"MAXFILEAGE": "1d"}).reader().options
    assert options == {"path": "/data", "MAXFILEAGE": "1d"}


def test_text_files_need_no_schema() -> None:
    assert FileSource("/data", format="text").reader().schema is None


def test_a_struct_type_is_given_to_spark_as_it_is() -> None:
    schema = SimpleNamespace(fields=[SimpleNamespace(name="a`b c", dataType=object())])
    assert FileSource("/data", "parquet", schema=schema).reader().schema is schema


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"path": ""}, ["path is ''", "directory"]),
        ({"path": None}, ["path is None"]),
        ({"format": "avrò"}, ["FileSource /data: format is 'avrò'", "'parquet'", "job.source"]),
        ({"schema": None}, ["schema is None", "json", "user STRING"]),
        ({"schema": " "}, ["schema is ' '"]),
        ({"schema": 7}, ["schema is 7", "StructType"]),
        ({"schema": SimpleNamespace(fields=[1])}, ["schema is", "StructType"]),
        ({"ending": None}, ["ending is None", "'never'"]),
        ({"options": [("a", "b")]}, ["options", "list", "dict"]),
        ({"options": {"Path": "/x"}}, ["'Path'", "first argument"]),
        ({"options": {"a": None}}, ["option 'a'", "NoneType"]),
    ],
)
def test_a_mistake_in_a_file_source_is_named(settings: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        FileSource(**{"path": "/data", "format": "json", "schema": "a INT", **settings})
    assert str(error.value).startswith("FileSource")
    for part in named:
        assert part in str(error.value)


def test_a_socket_is_not_replayable_and_never_ends() -> None:
    assert SocketSource("::1", 1).describe() == "socket ::1:1"
    source = SocketSource("localhost", 9999)
    assert source.reader().format == "seamark-socket"
    assert source.reader().options == {"host": "localhost", "port": "9999"}
    assert not source.replayable
    assert not source.bounded
    assert source.describe() == "socket localhost:9999"


@pytest.mark.parametrize(
    ("host", "port", "named"),
    [
        ("", 1, "host is ''"),
        (None, 1, "host is None"),
        ("http://a", 1, "host is 'http://a'"),
        ("a:1", 1, "host is 'a:1'"),
        ("a", "80", "port is '80'"),
        ("a", True, "port is True"),
        ("a", 0, "port is 0; give a whole number from 1 to 65535"),
        ("a", 65536, "port is 65536"),
    ],
)
def test_a_mistake_in_a_socket_source_is_named(host: Any, port: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match="SocketSource") as error:
        SocketSource(host, port)
    assert named in str(error.value)
