"""How: Hypothesis draws odd names of directories, full of special characters of URIs, globs, Hadoop
and UTF-8. A name is taken as it stands, as the kernel takes it, or refused when the job is built.
`tests/spark/storage/test_odd_paths.py` asks Hadoop the same."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import seamark as sm
from seamark.files import open_directory, shared_uri
from seamark.files.location import (
    Location,
    decoded,
    encoded,
    local_of,
    same_place,
    storage_uri,
)
from seamark.model.errors import ConfigurationError

ODD = ["%", "%41", "%2F", "%00", "#", "?", "*", "[", "]", "{", "}", "\\", ":", ";", "=", "&", "@",
       " ", "+", "~", "é", "e\u0301", "日", "😀", "'", '"', ".", "..", "a", "B", "file:", "//",
       "\0", "\n", "\x7f", "\udc80", "\ud800"]  # fmt: skip
NAMES = st.lists(st.sampled_from(ODD), min_size=1, max_size=6).map("".join)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(os.path.realpath(directory))


def refused(make: Callable[[], object]) -> bool:
    try:
        make()
    except ConfigurationError as error:
        assert str(error).startswith("the setting "), "the setting is named"
        return True
    return False


@given(path=PATHS)
@example(path="a%41b")
@example(path="backups#1")
@example(path="a?b/c")
@example(path="x/../y")
@example(path="\0")
def test_a_local_path_is_what_the_kernel_takes_it_for(top: Path, path: str) -> None:
    text = f"{top}/{path}"
    if refused(lambda: storage_uri(text, "the setting")):
        assert any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in path)
        return
    uri = storage_uri(text, "the setting")
    local = local_of(uri)
    assert local is not None
    assert storage_uri(uri, "the setting") == uri, "what is printed can be given"
    assert shared_uri(text, "the setting") == local
    assert "/../" not in f"{local}/"
    assert str(open_directory(encoded(uri))) == local
    assert open_directory(encoded(uri)).uri == uri
    assert decoded(encoded(uri)) == uri
    assert same_place(text, uri)
    assume(local.startswith(f"{top}/") and len(path.encode()) < 200)
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError:  # nothing above it by '..' is there
        return
    assert Path(local).samefile(text)


@given(path=PATHS, scheme=st.sampled_from(["hdfs://name:8020", "s3a://bucket", "hdfs://"]))
def test_a_path_in_another_file_system_stays_as_it_is(path: str, scheme: str) -> None:
    text = f"{scheme}/{path}"
    for make in (storage_uri, shared_uri):
        if not refused(lambda make=make: make(text, "the setting")):  # type: ignore[misc]
            below = path.strip("/")
            assert make(text, "the setting") == (f"{scheme}/{below}" if below else scheme)
            assert ".." not in path.split("/")


@given(one=PATHS, other=PATHS)
def test_two_paths_are_two_places(one: str, other: str) -> None:
    for top in ("/top", "hdfs://name", "s3a://bucket/x"):
        uris = set()
        for path in (one, other):
            try:
                uris.add(Location.parse(f"{top}/{path}", "").uri)
            except ConfigurationError:
                return
        same = os.path.normpath(f"/top/{one}") == os.path.normpath(f"/top/{other}")
        assert (len(uris) == 1) == same


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("http://host/x", "has the scheme 'http', where no checkpoint can be kept"),
        ("jdbc:postgresql://host/x?password=s3cr3t", "'jdbc' and no path from the top"),
        ("jdbc://host/x", "has the scheme 'jdbc', where no checkpoint"),
        ("s3a:///x", "names no bucket"),
        ("s3a://key:s3cr3t@bucket/x", "keys belong"),
        ("s3://bucket/jobs", "'s3', which Hadoop no longer has .*; write s3a://bucket/jobs"),
        ("s3n://bucket/jobs", "'s3n', which .*; write s3a://bucket/jobs"),
        ("hdfs://name?x/y", "'name\\?x' is no host"),
        ("hdfs:x", "no path from the top"),
        ("hdfs://name/a/../b", "without '.', '..'"),
        ("~no-such-user/x", "give an absolute path"),
        ("/x/\0y", "control character '\\\\x00'"),
        ("/x/\udc80", "no UTF-8"),
    ],
)
def test_a_storage_that_cannot_be_is_refused_when_the_job_is_built(given: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^CheckpointConfig: storage .*{says}") as found:
        sm.CheckpointConfig(storage=given)
    assert "s3cr3t" not in str(found.value)
    with pytest.raises(ConfigurationError, match="savepoint_dir"):
        sm.CheckpointConfig(storage="/s", savepoint_dir=given)


@pytest.mark.parametrize("scheme", ["wasb", "wasbs"])
def test_azures_blobs_are_refused_with_the_reason(scheme: str) -> None:
    uri = f"{scheme}://container@account.blob.core.windows.net/x"
    for settings in ({"storage": uri}, {"storage": "/s", "savepoint_dir": uri}):
        with pytest.raises(ConfigurationError, match=f"{uri}: .*39 succeeded.*CP003") as found:
            sm.CheckpointConfig(**settings)
        assert found.value.finding is not None
    with pytest.raises(ConfigurationError, match=f"'{scheme}', and Seamark has no client for it"):
        sm.FileSink(uri)


def test_rows_are_kept_only_where_the_workers_have_a_client() -> None:
    for uri in ("ofs://bucket/job/sinks/out", "wasbs://c@account.blob.core.windows.net/x"):
        with pytest.raises(ConfigurationError, match=f"{uri}: rows cannot be kept here"):
            open_directory(uri)


def test_an_account_in_front_of_a_host_is_no_secret() -> None:
    uri = "abfss://container@account.dfs.core.windows.net/x"
    assert storage_uri(f"{uri}/", "storage") == uri


def test_links_before_two_dots_are_followed_as_the_kernel_does(tmp_path: Path) -> None:
    """Hadoop takes away the part before them; the kernel follows the link first."""
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far/away")
    assert storage_uri(f"{tmp_path}/link/../x", "storage") == f"file://{tmp_path}/far/x"


@pytest.mark.parametrize("path", ["a\0b", "a\udc80b"])
def test_a_source_with_a_path_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="FileSource: path"):
        sm.FileSource(path, "text")
