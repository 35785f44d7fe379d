"""How: state directories as each backend leaves them, written by hand, with sizes of only one
possible sum. Real backends: tests/spark/checkpoints/test_state_backends.py."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from seamark.files.local import LocalDirectory
from seamark.run.epoch_figures import StateSizes


def write(directory: Path, **sizes: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        kind, version = name.split("_", 1)
        (directory / f"{version}.{kind}").write_bytes(b"x" * size)


def write_zip(path: Path, ssts: dict[str, int]) -> int:
    """Return the zip's own size."""
    body = {
        "sstFiles": [
            {"localFileName": f"{n}.sst", "dfsSstFileName": f"{n}-uuid.sst", "sizeBytes": size}
            for n, size in ssts.items()
        ],
        "logFiles": [],
        "numKeys": 3,
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps(body))
        archive.writestr("MANIFEST-000005", b"m" * 100)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.getvalue())
    return len(data.getvalue())


def sizes(root: Path, *epochs: int) -> dict[int, dict[int, dict[int, tuple[int, int]]]]:
    return StateSizes(LocalDirectory(root)).of(epochs)


def test_hashmap_adds_deltas_to_the_latest_snapshot(tmp_path: Path) -> None:
    store = tmp_path / "state/0/1"
    write(store, delta_1=10, delta_2=20, delta_3=40, snapshot_2=25, delta_4=80, delta_5=160)
    (store / ".5.delta.crc").write_bytes(b"c" * 999)
    (store / "4.delta.crc").write_bytes(b"c" * 9999)
    write(tmp_path / "state/0/1/_metadata", schema_1=7)
    found = sizes(tmp_path, 0, 1, 2, 3)
    assert found == {
        0: {0: {1: (10, 10)}},
        1: {0: {1: (20, 25)}},
        2: {0: {1: (40, 65)}},
        3: {0: {1: (80, 145)}},
    }


def test_rocksdb_uploads_what_the_zip_before_does_not_name(tmp_path: Path) -> None:
    store = tmp_path / "state/0/0"
    one = write_zip(store / "1.zip", {"000001": 1000})
    two = write_zip(store / "2.zip", {"000001": 1000, "000002": 200})
    three = write_zip(store / "3.zip", {"000003": 1100})  # compacted
    found = sizes(tmp_path, 0, 1, 2)
    assert found[0][0][0] == (one + 1000, one + 1000)
    assert found[1][0][0] == (two + 200, two + 1200)
    assert found[2][0][0] == (three + 1100, three + 1100)


def test_with_changelog_a_snapshot_is_no_part_of_the_upload(tmp_path: Path) -> None:
    store = tmp_path / "state/0/0"
    write(store, changelog_1=10, changelog_2=20, changelog_3=40)
    two = write_zip(store / "2.zip", {"000001": 1000})
    found = sizes(tmp_path, 0, 1, 2)
    assert found[0][0][0] == (10, 10)
    assert found[1][0][0] == (20, two + 1000)
    assert found[2][0][0] == (40, two + 1040)


def test_the_stores_of_a_join_are_one_subtask_and_format_2_names_are_read(tmp_path: Path) -> None:
    (tmp_path / "state/0/3").mkdir(parents=True)
    for name, size in {"left-keyToNumValues": 1, "right-keyWithIndexToValue": 20}.items():
        write(tmp_path / "state/0/3" / name, delta_1=size)
    uuid = "7e1c1ef0-2c3a-4f52-9d3f-6f6c5a0e4b11"
    (tmp_path / "state/1/0").mkdir(parents=True)
    (tmp_path / f"state/1/0/1_{uuid}.changelog").write_bytes(b"x" * 300)
    assert sizes(tmp_path, 0) == {0: {0: {3: (21, 21)}, 1: {0: (300, 300)}}}


def test_a_query_without_state_has_none(tmp_path: Path) -> None:
    assert sizes(tmp_path, 0, 5) == {0: {}, 5: {}}
