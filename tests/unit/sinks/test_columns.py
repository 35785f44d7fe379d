"""Common ground of the file-like sinks: paths, column checks and staged files, by examples."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.files.local import local_path, make_directory
from seamark.model.errors import ConfigurationError, CorruptRecordError
from seamark.model.schema import Column
from seamark.sinks.internal.columns import check_columns, datetimes_as_text
from seamark.sinks.internal.committables import UNKNOWN
from seamark.sinks.internal.staged_files import (
    StagedFile,
    list_staged,
    new_handle,
    staging_directory,
)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/x", "/data/x"),
        ("file:///data/x", "/data/x"),
        ("file:/data/a b", "/data/a b"),
        ("/data/a%20b", "/data/a%20b"),
        ("file://localhost/data", "/data"),
        (Path("/data/x"), "/data/x"),
        ("rel/x", str(Path.cwd() / "rel/x")),
        ("~/x", str(Path.home() / "x")),
    ],
)
def test_local_paths(given: object, path: str) -> None:
    assert local_path(given, "FileSink: path") == path


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("s3a://bucket/x", "only local paths in this version.*'s3a:'"),
        ("hdfs://name/x", "only local paths in this version"),
        ("file://host/x", r"file:///host/x"),
        ("file:/data/a%20b", "write the path alone: '/data/a b', or '/data/a%20b'"),
        ("", "give a local path"),
        (None, "give a local path"),
        ("a\0b", "NUL"),
    ],
)
def test_what_is_no_local_path_is_refused(given: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"FileSink: path.*{says}"):
        local_path(given, "FileSink: path")


@pytest.mark.parametrize(
    "type_",
    ["boolean", "bigint", "decimal(20,9)", "string", "timestamp_ntz", "array<map<string,date>>",
     "struct<interval:int,void:string,variant:date>", "struct<a:struct<time:timestamp>>"],
)  # fmt: skip
def test_types_that_are_taken(type_: str) -> None:
    check_columns((Column("c", type_),), "a sink")


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        ("interval", "interval"), ("interval day to second", "interval day to second"),
        ("variant", "variant"), ("void", "void"), ("time(6)", r"time\(6\)"),
        ("array<variant>", r"variant \(within array<variant>\)"),
        ("map<string,interval year>", "interval year"), ("struct<a:int,b:void>", "void"),
        ("array<struct<interval:interval day>>", "interval day"),
    ],
)  # fmt: skip
def test_types_that_are_refused_by_name(type_: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a sink: column 'c' has type {named}.*CAST"):
        check_columns((Column("ok", "int"), Column("c", type_)), "a sink")


def test_a_geometry_is_refused_with_what_spark_has_for_it() -> None:
    with pytest.raises(
        ConfigurationError, match=r"type geometry\(4326\).*e\.g\. ST_AsBinary\(`c`\)"
    ):
        check_columns((Column("c", "geometry(4326)"),), "a sink")


@pytest.mark.parametrize("key", ["binary", "struct<a:int>", "array<int>", "map<int,int>"])
def test_keys_of_maps_that_json_has_not_are_refused_where_json_is_written(key: str) -> None:
    """Spark writes the address of an object for them, another at each attempt."""
    schema = (Column("c", f"array<map<{key},int>>"),)
    check_columns(schema, "a sink")
    with pytest.raises(ConfigurationError, match=r"a sink: column 'c' has type array<map<.*JSON"):
        check_columns(schema, "a sink", as_json=True)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
def test_names_that_readers_cannot_tell_apart_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=f"columns '{names[0]}' and '{names[1]}'"):
        check_columns(tuple(Column(name, "int") for name in names), "a sink")


@pytest.mark.parametrize("name", ["a\0b", "_seamark_op", "_Seamark_row"])
def test_names_that_a_target_would_take_for_others_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"a sink: column '.*'.*withColumnRenamed"):
        check_columns((Column(name, "int"),), "a sink")


def test_no_columns_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no columns"):
        check_columns((), "a sink")


def test_times_become_utc_text_of_one_width() -> None:
    summer = 1_782_921_600_123_456  # 2026-07-01T16:00:00.123456Z
    batch = pa.record_batch(
        {
            "zoned": pa.array([summer, -1, None], pa.timestamp("us", "America/New_York")),
            "coarse": pa.array([0, 1, None], pa.timestamp("s", "UTC")),
            "local": pa.array([summer, 0, None], pa.timestamp("us")),
            "day": pa.array([0, -1, None], pa.date32()),
            "n": [1, 2, 3],
        }
    )
    assert datetimes_as_text(batch).to_pydict() == {
        "zoned": ["2026-07-01 16:00:00.123456Z", "1969-12-31 23:59:59.999999Z", None],
        "coarse": ["1970-01-01 00:00:00.000000Z", "1970-01-01 00:00:01.000000Z", None],
        "local": ["2026-07-01 16:00:00.123456", "1970-01-01 00:00:00.000000", None],
        "day": ["1970-01-01", "1969-12-31", None],
        "n": [1, 2, 3],
    }


LONG = "x" * 300


@pytest.mark.parametrize("uid", ["orders", "a.b-c_d", LONG, "../../etc", "with/slash", "ünï", ""])
def test_any_uid_stays_inside_the_staging_area(tmp_path: Path, uid: str) -> None:
    context = WriterContext(LONG, uid, 3, 17, 2, 2**40, 16)
    handles = {new_handle(context, "arrow") for _ in range(100)}
    assert len(handles) == 100
    handle = handles.pop()
    staged = tmp_path / handle
    assert staged.resolve().is_relative_to(tmp_path / handle.split("/")[0])
    assert max(map(len, handle.split("/"))) <= 255
    make_directory(staged.parent)
    staged.write_bytes(b"four")
    (staged.parent / "stranger.txt").touch()
    found = StagedFile(handle, LONG, uid, 3, 17, UNKNOWN, 4)
    assert list(list_staged(tmp_path, SinkContext(LONG, "etl", uid, 3, 1.0))) == [found]
    other = SinkContext(LONG, "etl", uid + "2", 3, 1.0)
    make_directory(staging_directory(tmp_path, other))
    assert list(list_staged(tmp_path, other)) == []
    assert load_committable(StagedFile, dump_committable(found)) == found


@pytest.mark.parametrize("handle", ["../x", "j/s/../../x", "j/s/name", "/etc/passwd", "j/s"])
def test_a_handle_that_leads_elsewhere_is_refused(handle: str) -> None:
    with pytest.raises(CorruptRecordError, match="not the handle"):
        StagedFile(handle, "j", "s", 1, 1, 1, 1)
    good = StagedFile("j/s/g1-e1-p1-a1-0.arrow", "j", "s", 1, 1, 1, 1)
    object.__setattr__(good, "handle", handle)
    with pytest.raises(CorruptRecordError, match="not the handle"):
        load_committable(StagedFile, dump_committable(good))


def test_a_newer_version_is_refused_by_its_number() -> None:
    with pytest.raises(CorruptRecordError, match=r"version b'2'.*newer"):
        load_committable(StagedFile, b"2 00000000 {}")
