"""How: a real job of three epochs on each state backend. Each file of its directory is truncated,
bit-flipped, emptied and deleted in turn, in a copy, and the copy is looked at as every start does:
the file is named, or is one of the few harmless ones of docs/operations/damaged-checkpoint.md; a
real run over all of those at once then counts right."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seamark.checkpoint.inspection import inspect, require_sound
from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model.errors import DamagedCheckpointError, DecisionMissingError
from tests.spark.savepoints.restore_app import add_clicks, counting_job, counts

BACKENDS = {
    "hashmap": {"state_backend": "hashmap"},
    "rocksdb": {"state_backend": "rocksdb"},
    "changelog": {"state_backend": "rocksdb", "changelog": True},
}
NEWEST = 2


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "flipped": flip,
    "emptied": lambda data: b"",
    "deleted": lambda data: None,
}


def does_not_matter(path: str, damage: str) -> bool:
    """Whether the start after epoch 2 doesn't need it: the page on damage says why, for each."""
    if re.fullmatch(r"(statistics|executions|ledger|losses)/.*", path):
        return True  # for people
    if re.fullmatch(rf"epochs/{NEWEST}/manifest\.json", path):
        return True  # it is only looked into less closely
    if re.fullmatch(r"lease/\d+\.json", path):
        return damage != "deleted"  # its name says all
    if re.fullmatch(r"epochs/[01]/.*|spark/(commits/\.?[01]|offsets/\.?0)(\.crc)?", path):
        return True  # of subsumed epochs
    if re.fullmatch(r"spark/state/0/\d/\.?[12]\.zip(\.crc)?", path):
        return True  # likewise: a whole store is in 3.zip
    if re.fullmatch(rf"epochs/{NEWEST + 1}/sealed\.1\.json", path):
        return damage == "deleted"  # as after a crash just before it was written
    return path.endswith(".crc") and (
        damage == "deleted"  # the file itself is good, and nothing is left to compare it with
        or damage == "flipped"  # in the chunk length: it fits a small file all the same
    )


def store(directory: Path) -> CheckpointStore:
    return CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))


def files_of(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.endswith(".tmp"))


def damaged(directory: Path) -> Iterator[tuple[str, str]]:
    """Do each damage to each file, one at a time; yield (path, damage) while it stands."""
    for file in files_of(directory):
        good = file.read_bytes()
        for name, damage in DAMAGES.items():
            bad = damage(good) if good else None
            file.unlink() if bad is None else file.write_bytes(bad)
            yield file.relative_to(directory).as_posix(), name
        file.write_bytes(good)


def is_named(path: str, problems: tuple[str, ...] | list[str]) -> bool:
    """By its own name, or, for a checksum file, by its file's."""
    name = path.rsplit("/", 1)[-1]
    return any(name in line or re.sub(r"^\.|\.crc$", "", name) in line for line in problems)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for part in range(NEWEST + 1):
        add_clicks(folder, part * 30)
    for name, settings in BACKENDS.items():
        counting_job(folder, name, **settings).run()
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    return folder


@pytest.mark.parametrize("name", BACKENDS)
def test_every_damage_is_found_before_a_start(jobs: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(jobs / "store" / name, tmp_path / name))
    require_sound(store(copy))
    cases = 0
    for path, damage in damaged(copy):
        cases += 1
        if does_not_matter(path, damage):
            continue
        with pytest.raises(DamagedCheckpointError) as found:
            require_sound(store(copy))
        assert is_named(path, found.value.problems), (path, damage, found.value.problems)
        assert (path == f"spark/commits/{NEWEST}" and damage == "deleted") == isinstance(
            found.value, DecisionMissingError
        )
        needed_by_all = re.match(r"spark/(metadata|state/\d/(\d/)?_metadata|\.m)", path)
        if not needed_by_all and not path.startswith(("spark/sources", "spark/state")):
            assert found.value.restore_path, f"{path} {damage}: no older checkpoint is offered"
    assert cases > 150
    require_sound(store(copy))


@pytest.mark.parametrize("name", BACKENDS)
def test_every_damage_to_an_older_epoch_is_found_before_its_restore(
    jobs: Path, tmp_path: Path, name: str
) -> None:
    copy = Path(shutil.copytree(jobs / "store" / name, tmp_path / name))
    older = inspect(store(copy), 1)
    assert not older.problems
    needed = {f"spark/{path}" for path in older.files}
    needed |= {f"epochs/1/{n}" for n in ("prepared.1.json", "committed.json", "sealed.1.json")}
    found = set()
    for path, damage in damaged(copy):
        if path in needed:
            problems = inspect(store(copy), 1).problems
            assert is_named(path, problems), (path, damage, problems)
            found.add(path)
    assert found == needed


def test_a_damaged_job_does_not_start_and_its_newest_complete_checkpoint_goes_on(
    jobs: Path,
) -> None:
    state = jobs / "store/changelog/spark/state/0/1/3.changelog"
    good = state.read_bytes()
    state.write_bytes(flip(good))
    before = {p: p.read_bytes() for p in files_of(jobs / "store/changelog")}
    with pytest.raises(DamagedCheckpointError, match=r"3\.changelog: .* altered") as found:
        counting_job(jobs, "changelog", **BACKENDS["changelog"]).run()
    with pytest.raises(DamagedCheckpointError):
        counting_job(jobs, "new", **BACKENDS["changelog"]).run(
            restore=str(jobs / "store/changelog")
        )
    assert {p: p.read_bytes() for p in files_of(jobs / "store/changelog")} == before
    assert found.value.restore_path == f"file://{jobs}/store/changelog/epochs/1"
    assert "Rows of epochs 2 to 2" in str(found.value)
    counting_job(jobs, "mended", **BACKENDS["changelog"]).run(restore=found.value.restore_path)
    assert counts(jobs, "mended") == [30]


def contents(directory: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (file, damage)
        for file in (f"offsets/{NEWEST - 1}", f"commits/{NEWEST}", "state/0/_metadata/metadata")
        for damage in DAMAGES
        if damage != "deleted" or file.startswith("state")
    ],
)
def test_a_real_start_refuses_what_spark_would_go_on_from(
    jobs: Path, tmp_path: Path, file: str, damage: str
) -> None:
    """Nothing is written, no lease either, and the newest whole checkpoint is offered if one is
    left without this file."""
    copy = Path(shutil.copytree(jobs / "store/hashmap", tmp_path / "hashmap"))
    path = copy / "spark" / file
    bad = DAMAGES[damage](path.read_bytes())
    path.unlink() if bad is None else path.write_bytes(bad)
    before = contents(copy)
    with pytest.raises(DamagedCheckpointError, match=f"spark/{file}") as found:
        counting_job(jobs, "hashmap", storage=str(tmp_path)).run()
    assert contents(copy) == before
    # Spark plans the epoch after N from offsets/N-1 too, so N-1 can be whole only without it.
    older = {f"commits/{NEWEST}": f"file://{copy}/epochs/{NEWEST - 1}"}
    assert found.value.restore_path == older.get(file, found.value.restore_path)
    if file.startswith("state"):
        assert found.value.restore_path is None


PUT_BACK = {
    "plans": [f"offsets/{NEWEST - 1}", f"offsets/{NEWEST}"],
    "decision": [f"commits/{NEWEST}"],
    "all": [f"offsets/{NEWEST}", *(f"commits/{n}" for n in range(NEWEST + 1))],
}


@pytest.mark.parametrize("gone", PUT_BACK)
def test_a_start_puts_back_the_plans_and_decisions_that_its_records_hold(
    jobs: Path, tmp_path: Path, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fenced driver's deletion may take effect after the epoch was decided anew."""
    original = jobs / "store/hashmap"
    kept = original.rename(tmp_path / "kept")  # beside its original a copy is refused
    copy = Path(shutil.copytree(kept, tmp_path / "hashmap"))
    files = {copy / "spark" / file: (copy / "spark" / file).read_bytes() for file in PUT_BACK[gone]}
    for file in files:
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink()
    add_clicks(jobs, 900)
    try:
        counting_job(jobs, "hashmap", f"put-back-{gone}", storage=str(tmp_path)).run()
    finally:
        kept.rename(original)
    assert {file: file.read_bytes() for file in files} == files
    assert counts(jobs, f"put-back-{gone}") == [40]
    assert all(f"put {file.as_uri()} back" in caplog.text for file in files)


@pytest.mark.parametrize(
    ("gone", "says", "offered"),
    [
        ([f"epochs/{NEWEST}"], f"epochs/{NEWEST}: missing, though this epoch is decided", 1),
        (
            [f"epochs/{NEWEST}", f"epochs/{NEWEST - 1}"],
            f"epochs/{NEWEST - 1}: missing, though this epoch is decided",
            0,
        ),
        (["epochs"], "epochs/0: missing, though this epoch is decided", None),
    ],
)
def test_a_start_without_records_of_what_is_decided_is_refused_before_anything_is_written(
    jobs: Path, tmp_path: Path, gone: list[str], says: str, offered: int | None
) -> None:
    copy = Path(shutil.copytree(jobs / "store/hashmap", tmp_path / "hashmap"))
    for directory in gone:
        shutil.rmtree(copy / directory)
    before = contents(copy)
    with pytest.raises(DamagedCheckpointError, match=says) as found:
        counting_job(jobs, "hashmap", storage=str(tmp_path)).run()
    assert contents(copy) == before
    expected = None if offered is None else f"file://{copy}/epochs/{offered}"
    assert found.value.restore_path == expected
    if offered is not None:
        assert f"Rows of epochs {offered + 1} to {NEWEST}" in str(found.value)


def test_a_job_whose_identity_is_gone_is_not_begun_anew(jobs: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(jobs / "store/hashmap", tmp_path / "hashmap"))
    (copy / "job.json").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"job\.json: missing") as found:
        counting_job(jobs, "hashmap", storage=str(tmp_path)).run()
    assert found.value.restore_path == f"file://{copy}/epochs/{NEWEST}"


def test_what_does_not_matter_does_not_change_a_count(jobs: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(jobs / "store/hashmap", tmp_path / "hashmap"))
    for file in files_of(copy):
        path = file.relative_to(copy).as_posix()
        if does_not_matter(path, "deleted"):
            file.unlink()
        elif does_not_matter(path, "emptied"):
            file.write_bytes(b"")
    add_clicks(jobs, 900)
    counting_job(jobs, "hashmap", "after", storage=str(tmp_path)).run()
    assert counts(jobs, "after") == [40]
