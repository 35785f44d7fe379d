"""The order of a restore's writes, for every origin: on real local directories, with an origin of
two files. A kill is an exception at a failpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.api.config import StateBackend
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.errors import RestoreError
from seamark.savepoints.restore.from_savepoint import SavepointOrigin, TopicChanges
from seamark.savepoints.restore.lineage import Place
from seamark.savepoints.restore.options import NewJob, new_side
from seamark.savepoints.restore.origin import Origin, Parts, Waiting
from seamark.savepoints.restore.plan import ClaimMode, RestorePlan, SinkPlan
from seamark.savepoints.restore.planner import Prepared
from seamark.savepoints.restore.target import create, read_marker
from seamark.savepoints.restore.write import write_job
from seamark.savepoints.state.planned import PlannedState, Program, StateMetadata
from seamark.spark.operator_uids import OperatorUids

PATH = "file:///first"
PARTS = {"files": SinkEpoch(3, (b"one",))}
NO_QUERY: Any = None


class Given(Origin):
    """One of epoch 7, with waiting transactions of `waits`."""

    kind = "savepoint"
    name = "the origin"
    job_id, epoch, watermark_ms = "a" * 32, 7, 0
    placement = "of one program"

    def __init__(self, job: NewJob, waits: tuple[int, ...] = (), *, taken: bool = False) -> None:
        self.state = new_side(job, 3)
        self.settings = {}
        self._job, self._waits, self._taken = job, waits, taken

    def parts(self, wanted: PlannedState | None) -> Parts:
        return Parts((), ())

    def problems(self) -> Iterator[str]:
        yield from ()

    def metadata(self) -> StateMetadata:
        raise AssertionError

    def sinks(self) -> Iterator[SinkPlan]:
        yield from ()

    def warnings(self) -> Iterator[str]:
        yield from ()

    def decisions(self) -> dict[str, Any]:
        return {"waits": self._waits}

    def fixed(self, parts: Parts) -> dict[str, Any]:
        return {"partitions": self._job.partitions, "placement": self.placement}

    def claim(self, job_id: str, directory: str) -> None:
        if self._taken:
            raise RestoreError("another job was first")

    def copy(self, target: CheckpointStore, decided: Mapping[str, Any], parts: Parts) -> None:
        assert target.files.exists("restoring.json")
        create(target.spark_files, "metadata", decided["query_id"].encode())
        create(target.spark_files, "offsets/7", b"v1\n{}")
        failpoints.reached("half-copied")
        create(target.spark_files, "commits/7", b"v1\n{}")

    def waiting(self, decided: Mapping[str, Any]) -> Waiting:
        return {epoch: lambda: PARTS for epoch in decided["waits"]}


def a_job(partitions: int = 3) -> NewJob:
    return NewJob(
        "new",
        PATH,
        Program(NO_QUERY, "append", OperatorUids()),
        {},
        StateBackend.ROCKSDB,
        partitions,
    )


def a_target(directory: Path) -> CheckpointStore:
    return CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))


def restore(target: CheckpointStore, origin: Given, job: NewJob) -> None:
    plan = RestorePlan(PATH, "savepoint", None, origin.state, origin.state, ClaimMode.NO_CLAIM)
    write_job(
        Place(target, 1), job, Prepared(plan, origin, begun=read_marker(target, PATH)), origin
    )


@pytest.mark.parametrize("waits", [(), (6, 7)])
def test_the_marker_is_first_and_job_json_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: tuple[int, ...]
) -> None:
    target, there = a_target(tmp_path), {}
    monkeypatch.setattr(
        failpoints, "reached", lambda point: there.update({point: set(target.files.tree())})
    )
    restore(target, Given(a_job(), waits), a_job())
    assert there["restore-begun"] == {"restoring.json"}
    of_epochs = (
        {f"epochs/{epoch}/prepared.0.json" for epoch in waits}
        if waits
        else {"epochs/7/manifest.json"}
    )
    copied = {"restoring.json", "spark/metadata", "spark/offsets/7", "spark/commits/7"} | of_epochs
    assert there["restore-copied"] == copied
    assert there["restored"] == copied | {"job.json"}
    assert set(target.files.tree()) == copied - {"restoring.json"} | {"job.json"}
    identity = target.read_identity()
    assert identity.first_epoch == min(waits, default=8)
    assert identity.restored_from == {
        "path": PATH, "job_id": "a" * 32, "epoch": 7, "is_savepoint": True
    }  # fmt: skip
    assert [target.read_prepared(epoch, 0) for epoch in waits] == [PARTS] * len(waits)


@pytest.mark.parametrize("point", ["restore-begun", "half-copied", "restore-copied"])
def test_a_restore_that_is_cut_off_comes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def dies(reached: str) -> None:
        if reached == point:
            raise KeyboardInterrupt

    target, origin = a_target(tmp_path), Given(a_job(), (7,))
    with monkeypatch.context() as killed:
        killed.setattr(failpoints, "reached", dies)
        with pytest.raises(KeyboardInterrupt):
            restore(target, origin, a_job())
    assert not target.files.exists("job.json")
    decided = read_marker(target, PATH)
    assert decided is not None
    with pytest.raises(RestoreError, match="begun with partitions 3; end it with those"):
        restore(target, Given(a_job(4)), a_job(4))
    changed = Given(a_job(), (7,))
    changed.placement = "of another"
    with pytest.raises(RestoreError, match="begun with other operators or sources; end it"):
        restore(target, changed, a_job())
    restore(target, origin, a_job())
    identity = target.read_identity()
    assert (identity.job_id, identity.lineage_id) == (decided["job_id"], decided["lineage_id"])
    assert target.spark_files.read("metadata").decode() == decided["query_id"]
    assert target.read_prepared(7, 0) == PARTS


def test_an_origin_that_another_job_has_claimed_leaves_nothing_behind(tmp_path: Path) -> None:
    target = a_target(tmp_path)
    with pytest.raises(RestoreError, match="another job was first"):
        restore(target, Given(a_job(), taken=True), a_job())
    assert target.files.tree() == {}


def test_a_program_with_its_parts_elsewhere_does_not_finish_a_savepoints_copy() -> None:
    def fixed(numbers: dict[str, int], lines: tuple[int, ...] = (0,), **given: Any) -> Any:
        uids = OperatorUids({0: "in"}, {n: uid for uid, n in numbers.items()}, lines)
        job = replace(a_job(), program=Program(NO_QUERY, "append", uids))
        origin = SavepointOrigin.__new__(SavepointOrigin)
        origin._job, origin._topics = job, TopicChanges(**given)
        operators: list[Any] = [SimpleNamespace(uid=uid) for uid in ("a", "b")]
        parts = Parts([(o, numbers[o.uid]) for o in operators], [])
        return origin.fixed(parts)

    first = fixed({"a": 0, "b": 1})
    assert fixed({"b": 1, "a": 0}) == first
    assert {**fixed({"a": 1, "b": 0}), "placement": ""} == {**first, "placement": ""}
    for other in (
        fixed({"a": 1, "b": 0}),
        fixed({"a": 0, "b": 1}, lines=(0, 0)),
        fixed({"a": 0, "b": 1}, offsets={"in": {"clicks": {"0": 5}}}),
    ):
        assert other != first
