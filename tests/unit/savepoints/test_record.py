"""``savepoint.json``: a written record is read; a broken one is never taken for a savepoint.

On a real local directory, without Spark.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from seamark.checkpoint.envelope import open_envelope
from seamark.files.local import LocalDirectory
from seamark.model.errors import CorruptRecordError, SavepointError
from seamark.savepoints.record import (
    KIND,
    SAVEPOINT,
    ColumnFamily,
    Operator,
    SavepointRecord,
    Source,
    Store,
    read_savepoint,
    write_savepoint,
    write_taking,
)

GOLDEN = Path(__file__).parents[2] / "golden"
LONG = {"type": "struct", "fields": [{"name": "n", "type": "long"}]}


def a_savepoint(files: LocalDirectory) -> SavepointRecord:
    families = (
        ColumnFamily("default", "rows", LONG, LONG, {"type": "none"}, False, False, 3, 96),
        ColumnFamily("more", "list", LONG, LONG, {"type": "none"}, True, True, 4, 128),
    )
    return SavepointRecord(
        uri=files.uri,
        job_id="a" * 32,
        job_name="clicks",
        epoch=7,
        created_at=1.5,
        spark_version="4.2.0",
        state_backend="hashmap",
        partitions=3,
        watermark_ms=1000,
        settings={"spark.sql.shuffle.partitions": "3"},
        sources=(Source("clicks", 0, {"clicks": {"0": 5}}), Source("rates", 1, None)),
        source_lines=(0, 1),
        operators=(
            Operator("per-minute", 0, "stateStoreSave", 3, True, None,
                     (Store("default", "state/0/default", families),)),
        ),
        committables={"to-kafka": (b"\x00one", b"two")},
        files={"state/0/default/part-0.parquet": (10, 99)},
    )  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    savepoint = a_savepoint(files)
    write_savepoint(files, savepoint)
    assert read_savepoint(files) == savepoint
    assert savepoint.operator("per-minute").rows == 7
    assert savepoint.operator("per-minute").bytes == 224


def test_a_savepoint_knows_where_it_lies_now(tmp_path: Path) -> None:
    write_savepoint(
        LocalDirectory(tmp_path / "here"), a_savepoint(LocalDirectory(tmp_path / "here"))
    )
    (tmp_path / "here").rename(tmp_path / "there")
    assert read_savepoint(LocalDirectory(tmp_path / "there")).uri.endswith("/there")
    assert "here" not in (tmp_path / "there" / "savepoint.json").read_text()


def test_one_that_was_cut_off_is_no_savepoint(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    write_taking(files, "id", "clicks", "file:///store/clicks", 7)
    files.create("state/0/default/part-0.parquet", b"rows")
    with pytest.raises(SavepointError, match="not a whole savepoint"):
        read_savepoint(files)


@pytest.mark.parametrize("file", [None, "rows.txt", "epochs/7/complete.json"])
def test_another_directory_is_no_savepoint(tmp_path: Path, file: str | None) -> None:
    """Nobody is told to delete it: it may be a job's checkpoint."""
    files = LocalDirectory(tmp_path)
    if file is not None:
        files.create(file, b"rows")
    with pytest.raises(SavepointError, match="there is no savepoint here; check the path") as told:
        read_savepoint(files)
    assert "delete" not in str(told.value)


def test_the_directory_of_savepoints_is_told_from_one(tmp_path: Path) -> None:
    LocalDirectory(tmp_path / "savepoint-1f2e-77aa").create("savepoint.json", b"{}")
    files = LocalDirectory(tmp_path)
    with pytest.raises(SavepointError, match="no savepoint here; give one that it holds: ") as told:
        read_savepoint(files)
    assert str(told.value).endswith(f"{files.uri}/savepoint-1f2e-77aa")


@pytest.mark.parametrize("file", ["job.json", "committed.json"])
def test_a_retained_checkpoint_is_named_as_one(tmp_path: Path, file: str) -> None:
    files = LocalDirectory(tmp_path)
    files.create(file, b"{}")
    with pytest.raises(SavepointError, match="a checkpoint is here, no savepoint; seamark check"):
        read_savepoint(files)


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_one_is_found(tmp_path: Path, damage: str) -> None:
    write_savepoint(LocalDirectory(tmp_path), a_savepoint(LocalDirectory(tmp_path)))
    path = tmp_path / "savepoint.json"
    text = path.read_text()
    path.write_text(text[:-20] if damage == "truncated" else text.replace('"epoch":7', '"epoch":8'))
    with pytest.raises(CorruptRecordError, match=r"savepoint\.json: .*; put the file back from"):
        read_savepoint(LocalDirectory(tmp_path))


def test_a_finished_savepoint_is_not_written_again(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    write_savepoint(files, a_savepoint(files))
    with pytest.raises(FileExistsError):
        write_savepoint(files, a_savepoint(files))


def test_an_operator_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="'per-hour'; it has 'per-minute'"):
        a_savepoint(LocalDirectory(tmp_path)).operator("per-hour")


@pytest.mark.parametrize(
    "golden", sorted(GOLDEN.rglob("*.zip")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_savepoint_of_an_older_release_is_read_whole(golden: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(golden) as archive:
        data = archive.read(SAVEPOINT)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / SAVEPOINT).write_bytes(data)
    found = read_savepoint(LocalDirectory(tmp_path / "old"))
    write_savepoint(LocalDirectory(tmp_path / "new"), found)
    before = open_envelope(KIND, data, SAVEPOINT)
    after = open_envelope(KIND, (tmp_path / "new" / SAVEPOINT).read_bytes(), SAVEPOINT)
    assert {source.pop("kind") for source in after["sources"]} <= {""}, "unknown in older ones"
    assert {len(source.pop("topics")) for source in after["sources"]} <= {0}, "as well"
    assert {name: after[name] for name in before} == before
