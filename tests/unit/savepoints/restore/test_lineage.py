"""A restore under the name of a job, killed at each of its points: on real local directories.

How: the job's last driver died with an epoch decided and uncommitted, and the next one stored. A
kill is an exception at a failpoint. Spark's part is left out: the origin is of two files, as in
`test_write.py`, and the sinks are in memory.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.api.config import CheckpointConfig
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.lineages import lineages_of
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory
from seamark.files.deadline import open_local
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.errors import CorruptRecordError, FencedError, RestoreError
from seamark.protocol.procedures import take_over
from seamark.protocol.verdicts import DriverState
from seamark.savepoints.restore import lineage, write
from seamark.savepoints.restore.lineage import Place, find_place, problems, superseded
from seamark.savepoints.restore.plan import RestorePlan
from seamark.savepoints.restore.planner import Prepared
from seamark.savepoints.restore.target import read_marker
from seamark.savepoints.restore.write import restore_job
from tests.unit.checkpoint.memory_sink import MemorySink, Transaction
from tests.unit.checkpoint.test_coordinator import World, until
from tests.unit.savepoints.restore.test_write import Given, a_job, a_target

POINTS = (
    "generation-claimed", "recovered", "lineage-settled", "restore-begun", "half-copied",
    "restore-copied", "restored", "superseded",
)  # fmt: skip
SPARK: Any = None


class Storage:
    """The job ``new`` and its drivers, without Spark."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.sink = directory, MemorySink()
        world = World(directory / "new", files=self.sink)
        world.job = lambda **_: self.checkpointed(self.lineage(1))  # type: ignore[method-assign]
        self.world, self.retained = world, 100
        driver = world.driver()
        world.epoch(driver, 0)
        driver.fail(RuntimeError("as if killed"))
        world.decide(0)
        second = self.lineage(1)
        world.plan(1)
        parts = {"files": SinkEpoch(10, (self.sink.flush("1.1", 1),))}
        second.write_prepared(1, 1, parts, "v1\n{}")
        declared: Any = SimpleNamespace(sinks={"files": SimpleNamespace(sink=self.sink)})
        self.job = replace(a_job(), directory=f"file:{directory}/new", declared=declared)

    def lineage(self, number: int) -> CheckpointStore:
        return a_target(self.directory / "new" / ("" if number == 1 else f"lineages/{number}"))

    def checkpointed(self, store: CheckpointStore) -> CheckpointedJob:
        checkpoint = CheckpointConfig(interval=1, num_retained=self.retained)
        return CheckpointedJob("new", {"files": self.sink}, store, checkpoint)

    def chain(self) -> list[int]:
        return lineages_of(LocalDirectory(self.directory / "new"))

    def run(self, number: int) -> int:
        """Start and end a driver of a lineage; return the epoch after which it goes on."""
        driver = Coordinator(self.checkpointed(self.lineage(number)))
        driver.start()
        driver.finish()
        return driver.restored_epoch


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    found = Storage(tmp_path)

    def files(_: Any, uri: str, *, make: bool = True) -> Directory:
        return open_local(uri.removeprefix("file:"), make=False)

    def store(_: Any, uri: str, below: str) -> CheckpointStore:
        return CheckpointStore(files(None, uri), files(None, f"{uri}/{below}"))

    @contextlib.contextmanager
    def prepare(_: Any, path: str, job: Any, place: Place) -> Iterator[Prepared]:
        origin = Given(job)
        plan = RestorePlan(path, "savepoint", None, origin.state, origin.state)
        yield Prepared(plan, origin, begun=read_marker(place.target, path))

    monkeypatch.setattr(lineage, "open_files", files)
    monkeypatch.setattr(lineage, "open_job", store)
    monkeypatch.setattr(lineage, "clone_session", lambda _: None)
    monkeypatch.setattr(lineage, "function_sessions", lambda *_: {})
    monkeypatch.setattr(
        lineage,
        "checkpointed_job",
        lambda _, job, store, left, **__: replace(found.checkpointed(store), left=left),
    )
    monkeypatch.setattr(write, "prepare", prepare)
    return found


class OtherSink(MemorySink):
    def load(self, data: bytes) -> Transaction:
        raise CorruptRecordError("as if damaged")


def dying_at(point: str) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    return reached


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("then", ["the same command", "a plain run"])
def test_whatever_a_kill_leaves_goes_on(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, point: str, then: str
) -> None:
    path = "file:///savepoint"
    with monkeypatch.context() as killed:
        killed.setattr(failpoints, "reached", dying_at(point))
        with pytest.raises(KeyboardInterrupt):
            restore_job(SPARK, path, storage.job)
    ended = point == "superseded"
    assert storage.chain() == ([1, 2] if ended else [1])
    if then == "a plain run":
        assert storage.run(storage.chain()[-1]) == (7 if ended else 0)
    at = restore_job(SPARK, path, storage.job)
    number = int(at.rpartition("/new/lineages/")[2])
    assert storage.chain() == [1, number]
    assert storage.run(number) == 7
    with pytest.raises(FencedError, match="was the last one here"):
        storage.run(1)
    assert storage.sink.visible == ["0.1"], "what was decided is there once, the rest never"
    assert not storage.lineage(number).files.exists("restoring.json")
    old, new = storage.lineage(1).read_identity(), storage.lineage(number).read_identity()
    assert old.job_id != new.job_id and old.lineage_id != new.lineage_id
    assert restore_job(SPARK, path, storage.job) == at, "the same command goes on with it"
    assert storage.chain() == [1, number]


@pytest.mark.parametrize("point", ["lineage-settled", "restored"])
def test_a_start_beside_a_restore_wins_and_the_restore_says_so(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def starts(name: str) -> None:
        if name == point:
            monkeypatch.setattr(failpoints, "reached", lambda _: None)
            assert storage.run(1) == 0

    monkeypatch.setattr(failpoints, "reached", starts)
    with pytest.raises(RestoreError, match=r"goes on as it was, for another driver has taken it"):
        restore_job(SPARK, "file:///savepoint", storage.job)
    assert storage.chain() == [1]
    at = restore_job(SPARK, "file:///savepoint", storage.job)
    assert storage.chain() == [1, int(at.rpartition("/")[2])]


def test_what_another_restore_has_begun_is_left_alone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(failpoints, "reached", dying_at("restored"))
        with pytest.raises(KeyboardInterrupt):
            restore_job(SPARK, "file:///one", storage.job)
    assert restore_job(SPARK, "file:///two", storage.job).endswith("lineages/3")
    # It was begun from the first lineage: from the third on, it is another restore.
    assert find_place(SPARK, "file:///one", storage.job).number == 4
    assert storage.chain() == [1, 3]
    # Deleted with its checkpoints, the newest lineage's directory is a new job's.
    shutil.rmtree(storage.directory / "new/lineages/3")
    place = find_place(SPARK, "file:///one", storage.job)
    assert (place.number, place.current) == (3, None)


def test_the_plan_tells_what_is_superseded_and_what_stands_in_the_way(storage: Storage) -> None:
    current = storage.lineage(1)
    current.open_existing("new")
    found = list(problems(storage.job, current, DriverState.LIVES))
    assert "is running; a restore under its name begins when it has ended" in found[0]
    assert len(found) == 1
    assert list(problems(storage.job, current, DriverState.UNKNOWN)) == []
    lacks_it = replace(storage.job, declared=SimpleNamespace(sinks={}))  # type: ignore[arg-type]
    (said,) = problems(lacks_it, current, DriverState.UNKNOWN)
    assert "sink 'files' has 2 unsettled transactions" in said and "has no such sink" in said
    other: Any = SimpleNamespace(sinks={"files": SimpleNamespace(sink=OtherSink())})
    has_another = replace(storage.job, declared=other, sinks={"files": "OtherSink"})
    (said,) = problems(has_another, current, DriverState.UNKNOWN)
    assert "and the program has a OtherSink, of another type" in said

    storage.run(1)
    origin = Given(storage.job)
    told = superseded(current, origin)
    assert (told.epoch, told.again) == (0, None)
    origin.job_id, origin.epoch = current.read_identity().job_id, -1
    told = superseded(current, origin)
    assert (told.again, told.rows) == ((0, 0), 10)
    assert "epochs 0 to 0 already (10 rows), and their rows are written again" in told.warning()


def test_the_plan_of_an_earlier_lineages_savepoint_names_all_that_comes_again(
    storage: Storage,
) -> None:
    first = storage.lineage(1).open_existing("new").job_id
    restore_job(SPARK, "file:///savepoint", storage.job)  # of epoch 7
    current = storage.lineage(2)
    world = World(storage.directory / "new/lineages/2", files=storage.sink)
    world.job = lambda **_: storage.checkpointed(current)  # type: ignore[method-assign]
    driver = world.driver()
    world.epoch(driver, 8)
    world.decide(8)
    until(lambda: driver.last_committed == 8)
    driver.finish()
    origin = Given(storage.job)
    origin.job_id = first
    earlier = find_place(SPARK, "file:///copy", storage.job).earlier
    told = superseded(current, origin, earlier)
    assert (told.again, told.rows) == ((8, 8), 10), "lineage 1 has decided epoch 0 alone"
    origin.epoch = -1
    told = superseded(current, origin, earlier)
    assert (told.again, told.rows) == ((0, 8), None)
    origin.job_id, origin.epoch = current.read_identity().job_id, 8
    assert superseded(current, origin, earlier).again is None
    origin.offsets_set = True
    told = superseded(current, origin, earlier)
    assert told.again is None and "offsets were set by hand" in told.warning()
    plan = RestorePlan("", "savepoint", None, origin.state, origin.state, supersedes=told)
    assert plan.to_json()["supersedes"]["rows-again"] is None


def test_of_two_claims_of_the_same_generation_the_later_loses(storage: Storage) -> None:
    store = storage.lineage(1)
    assert failpoints.drive(take_over(store)) == 2
    with pytest.raises(RestoreError, match="End that one, and run the same command again"):
        lineage.end_lineage(Place(store, 2, store), 1, {"path": "file:///savepoint", "epoch": 7})


def test_a_settled_lineage_keeps_its_checkpoints_however_few_the_program_retains(
    storage: Storage,
) -> None:
    driver = storage.world.driver()
    for epoch in range(1, 14):
        storage.world.epoch(driver, epoch)
        storage.world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023
    driver.finish()
    storage.retained = 1
    restore_job(SPARK, "file:///savepoint", storage.job)
    assert set(range(14)) <= set(storage.lineage(1).epochs())


def test_an_unchanged_command_does_not_undo_a_later_restore_by_hand(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    restore_job(SPARK, "file:///supervised", storage.job)
    at = restore_job(SPARK, "file:///by-hand", storage.job)
    assert storage.chain() == [1, 2, 3]
    assert restore_job(SPARK, "file:///supervised", storage.job) == at
    assert storage.chain() == [1, 2, 3]
    assert "lineages/3 goes on after its own epoch 7, for the job's earlier lineage" in caplog.text
    assert restore_job(SPARK, "file:///copy", storage.job).endswith("lineages/4"), "to go back"


def test_a_restore_that_was_cut_off_is_begun_anew_if_the_job_went_on(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(failpoints, "reached", dying_at("restored"))
        with pytest.raises(KeyboardInterrupt):
            restore_job(SPARK, "file:///new", storage.job)
    assert find_place(SPARK, "file:///new", storage.job).number == 2
    assert storage.lineage(2).read_identity().restored_from
    driver = storage.world.driver()
    storage.world.epoch(driver, 1)
    storage.world.decide(1)
    until(lambda: driver.last_committed == 1)
    driver.finish()
    # Its epoch was the job's newest then; now another one is.
    assert restore_job(SPARK, "file:///new", storage.job).endswith("lineages/3")
    assert storage.chain() == [1, 3]


@pytest.mark.parametrize("point", ["restore-copied", "restored"])
def test_a_changed_program_begins_a_copy_of_its_own(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(failpoints, "reached", dying_at(point))
        with pytest.raises(KeyboardInterrupt):
            restore_job(SPARK, "file:///savepoint", storage.job)
    monkeypatch.setattr(Given, "placement", "of a changed program")
    assert restore_job(SPARK, "file:///savepoint", storage.job).endswith("lineages/3")
    assert storage.chain() == [1, 3]


@pytest.mark.parametrize(
    "has",
    [{"beside": SimpleNamespace(sink=MemorySink())}, {"files": SimpleNamespace(sink=OtherSink())}],
)
def test_what_no_sink_of_the_program_can_end_is_left_to_its_system(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, has: dict[str, Any]
) -> None:
    sinks = {uid: declared.sink for uid, declared in has.items()}

    def checkpointed(_: Any, __: Any, store: CheckpointStore, left: Any, **___: Any) -> Any:
        return replace(storage.checkpointed(store), sinks=sinks, left=left)

    monkeypatch.setattr(lineage, "checkpointed_job", checkpointed)
    declared: Any = SimpleNamespace(sinks=has)
    job = replace(storage.job, declared=declared, allow_non_restored_state=True)
    before = dict(storage.sink.open)
    assert restore_job(SPARK, "file:///savepoint", job).endswith("lineages/2")
    assert storage.chain() == [1, 2]
    assert storage.sink.open == before and len(before) == 2
    assert list(storage.lineage(1).left(0)) == ["files"]


def test_a_job_that_goes_on_while_its_restore_is_planned_is_not_set_back(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = write.prepare

    @contextlib.contextmanager
    def slow(*given: Any) -> Iterator[Prepared]:
        with planned(*given) as prepared:
            driver = storage.world.driver()
            storage.world.epoch(driver, 1)
            storage.world.decide(1)
            yield prepared  # the driver knows nothing of a restore, and is not asked

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(write, "prepare", slow)
        with pytest.raises(RestoreError, match=r"went on from epoch 0 to 1, .* same command again"):
            restore_job(SPARK, "file:///savepoint", storage.job)
    assert storage.chain() == [1]
    assert storage.run(1) == 1, "as after any end"
    assert restore_job(SPARK, "file:///savepoint", storage.job).endswith("lineages/2")


def test_a_driver_that_cannot_be_asked_is_named(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = storage.lineage(1)
    assert list(lineage.warnings(store, DriverState.UNKNOWN)) == [], "this machine knows"
    monkeypatch.setattr(lineage.socket, "gethostname", lambda: "elsewhere")
    assert list(lineage.warnings(store, DriverState.IS_GONE)) == []
    (said,) = lineage.warnings(store, DriverState.UNKNOWN)
    assert "cannot be asked from here; if it still runs, the restore ends it" in said
