"""Several tries of one merge of IcebergSink's, of which an earlier one, given up, goes on.

Real tables on a local disk, as in `test_sink_changes.py`. A call hangs where it reads rows, and is
given up as at its deadline, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count, islice
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

from seamark.files.deadline import CallHangsError
from seamark.files.directory import NewFile
from seamark.files.local import LocalDirectory
from seamark.sinks.iceberg import catalog, merging
from tests.changes_suite import driver, write
from tests.integration.iceberg.sink_kit import opened, unnamed
from tests.integration.iceberg.test_sink_changes import alter, rows, table, theirs
from tests.two_drivers import ALREADY, COMMITTED, at

STAGES = ("keys", "found", "rewritten", "changes")
"""What a merge of one file reads rows for, in its order."""
WAYS = ("at-first", "midway", "fails")
"""Where the reading hangs; or at first, and then it fails in the middle."""


@pytest.fixture(autouse=True)
def _as_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer file replaces an older one of its name."""
    begin = LocalDirectory.begin

    def replace(files: LocalDirectory, path: str) -> NewFile:
        files.remove(path)
        return begin(files, path)

    monkeypatch.setattr(LocalDirectory, "begin", replace)


class Hang:
    """Makes a stage's first reading of rows hang. Its call is given up once it has come there, and
    its thread goes on at the `end`."""

    def __init__(self, patch: pytest.MonkeyPatch, stage: str, way: str = "at-first") -> None:
        self._hangs, self._goes_on = Event(), Event()
        self._calls, self._given_up = ThreadPoolExecutor(), list[Future[Any]]()
        readings, real = count(), merging.read_rows

        def read(*given: Any) -> Iterator[pa.RecordBatch]:
            batches = real(*given)
            if next(readings) == STAGES.index(stage):
                if way == "midway":
                    yield from islice(batches, 1)
                self._hangs.set()
                assert self._goes_on.wait(60)
                if way == "fails":
                    yield from islice(batches, 1)
                    raise OSError("the disk is away")
            yield from batches

        patch.setattr(merging, "read_rows", read)
        patch.setattr(catalog, "call_within", self._within)

    def _within(self, seconds: float, function: Callable[[], Any]) -> Any:
        call = self._calls.submit(function)
        while not wait([call], 0.01).done:
            if self._hangs.is_set():
                self._hangs.clear()
                self._given_up.append(call)
                raise CallHangsError
        return call.result()

    def end(self) -> None:
        """Let the call go on, and wait until it has ended."""
        self._goes_on.set()
        (call,) = self._given_up
        call.exception(60)


def merging_hangs(path: Path, patch: pytest.MonkeyPatch, *given: Any) -> tuple[Any, ...]:
    """Return a sink on a table of two rows, a committer whose first try has hung, its committables
    and the hang."""
    sink = table(path)
    theirs(sink, (1, "old", "n"), (3, "old", "n"))
    prepared = write(sink, [(1, "new", "update"), (4, "new", "insert")], 0)
    hang = Hang(patch, *given)
    committer = sink.create_committer(driver())
    with pytest.raises(OSError, match="has not answered"):
        committer.commit(prepared)
    return sink, committer, prepared, hang


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_late_try_touches_nothing_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, way: str
) -> None:
    """It goes on, or fails, while the next one commits; between, all rows were written anew."""
    sink, committer, prepared, hang = merging_hangs(tmp_path, monkeypatch, stage, way)
    seen = opened(sink).scan().to_arrow().drop_columns(["note"])
    opened(sink).overwrite(seen.append_column("note", pa.array(["seen"] * 2)))
    at("iceberg-files-rewritten", hang.end, monkeypatch)
    assert committer.commit(prepared) == [COMMITTED]
    assert rows(sink) == {1: ("new", "seen"), 3: ("old", "seen"), 4: ("new", None)}
    assert unnamed(sink) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_late_try_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, way: str
) -> None:
    """It goes on, or fails, after the next one's commit."""
    sink, committer, prepared, hang = merging_hangs(tmp_path, monkeypatch, stage, way)
    assert committer.commit(prepared) == [COMMITTED]
    hang.end()
    assert rows(sink) == {1: ("new", "n"), 3: ("old", "n"), 4: ("new", None)}
    assert list(sink.create_committer(driver(2)).list_lingering()) == []
    assert unnamed(sink) == []


@pytest.mark.parametrize("between", ["schema", "late"])
def test_what_an_earlier_try_has_named_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """The answers of two tries are lost, and the first one's snapshot lands. Between them the
    schema was another one, or a late try has ended."""
    sink, committer, prepared, hang = merging_hangs(tmp_path, monkeypatch, "keys")
    real, late = SqlCatalog.commit_table, list[Callable[[], Any]]()

    def delayed(catalog: SqlCatalog, *given: Any) -> Any:
        late.append(lambda: real(catalog, *given))
        raise OSError("no answer")

    schema = alter("add_column", "more", LongType()), alter("delete_column", "more")
    steps = schema if between == "schema" else (lambda _: hang.end(), lambda _: None)
    for step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", delayed)
            with pytest.raises(OSError, match="no answer"):
                committer.commit(prepared)
        step(sink)
    late[0]()
    assert committer.commit(prepared) == [ALREADY]
    assert rows(sink) == {1: ("new", "n"), 3: ("old", "n"), 4: ("new", None)}
    assert between == "schema" or unnamed(sink) == []
    hang.end()
