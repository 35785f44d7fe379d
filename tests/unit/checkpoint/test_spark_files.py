"""How: directories with Spark's file names and no content. Checksum files are made here by the
format's own words, and each bit of a file is flipped.

Real jobs: tests/spark/checkpoints/test_damage.py.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from seamark.checkpoint.manifest import ManifestWriter, read_manifest
from seamark.checkpoint.spark_files import StateTree, log_paths, metadata_at, unique_ids
from seamark.files import local
from seamark.files.local import LocalDirectory
from seamark.model.errors import CorruptRecordError
from seamark.spark.operator_uids import OperatorUids

ID = "0b2a7e86-5d0e-4a4e-8a34-3f1f0a6f2f11"
OTHER = "5f3c1d52-97c1-4f5e-9a55-1f8e3b1f7a02"


def tree(tmp_path: Path, *names: str) -> StateTree:
    for name in names:
        path = tmp_path / "state/0/0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return StateTree.read(LocalDirectory(tmp_path))


def chain(found: StateTree, version: int, *ids: str) -> tuple[list[str], list[str]]:
    needed, missing = found.chain("0/0", version, ids)
    return (
        sorted(n.removeprefix("state/0/0/") for n in needed),
        [n.removeprefix("state/0/0/") for n in missing],
    )


@pytest.mark.parametrize(
    ("names", "version", "needed", "missing"),
    [
        ("1.delta 2.delta 3.delta", 2, "1.delta 2.delta", ""),
        ("1.delta 3.delta", 3, "1.delta 3.delta", "2.delta"),
        ("1.delta 2.delta", 3, "1.delta 2.delta", "3.delta"),
        ("", 2, "", "1.delta 2.delta"),
        # Spark loads the latest whole copy up to the version, and the changes after it.
        ("1.delta 2.delta 2.snapshot 3.delta", 3, "2.snapshot 3.delta", ""),
        ("2.snapshot 3.snapshot 3.delta 4.delta", 2, "2.snapshot", ""),
        ("3.zip 4.zip", 4, "4.zip", ""),
        ("3.zip", 4, "3.zip", "4.zip"),
        ("1.changelog 2.zip 2.changelog 3.changelog", 3, "2.zip 3.changelog", ""),
        ("2.zip 2.changelog 4.changelog", 4, "2.zip 4.changelog", "3.changelog"),
        ("left-keys/1.delta 1.delta", 1, "1.delta", ""),
    ],
)
def test_the_files_that_a_version_needs(
    tmp_path: Path, names: str, version: int, needed: str, missing: str
) -> None:
    assert chain(tree(tmp_path, *names.split()), version) == (needed.split(), missing.split())


def test_format_2_names_carry_unique_ids(tmp_path: Path) -> None:
    found = tree(tmp_path, f"1_{OTHER}.zip", f"2_{ID}.zip", f"2_{ID}.zip.crc")
    assert chain(found, 2, ID) == ([f"2_{ID}.zip", f"2_{ID}.zip.crc"], [])
    assert chain(found, 2, OTHER)[1] == [f"2_{OTHER}.*"]
    found = tree(tmp_path, f"2_{OTHER}.zip")
    assert chain(found, 2, OTHER) == ([f"2_{OTHER}.zip"], []), "each attempt at a version by itself"
    commit = [{"stateUniqueIds": {"0": [["a"], ["b", "c"]]}}]
    assert unique_ids(commit, "0/1") == ["b", "c"]
    assert unique_ids([{"nextBatchWatermarkMs": 0}], "0/1") == []


def test_in_format_2_a_whole_copy_of_one_attempt_may_not_be_of_the_chain(tmp_path: Path) -> None:
    """Two attempts at version 3: perhaps the one without a whole copy is the one that counts."""
    names = [f"2_{ID}.zip", f"2_{ID}.changelog", f"3_{ID}.changelog", f"3_{OTHER}.changelog"]
    names += [f"3_{OTHER}.zip", f"4_{ID}.changelog", f"4_{OTHER}.changelog"]
    needed, missing = chain(tree(tmp_path, *names), 4, ID)
    assert needed == sorted({*names} - {f"2_{ID}.changelog", f"4_{OTHER}.changelog"})
    assert missing == []
    found = tree(tmp_path, f"3_{ID}.zip")
    needed, _ = chain(found, 4, ID)
    assert needed == sorted([f"3_{ID}.zip", f"3_{OTHER}.zip", f"4_{ID}.changelog"])


def test_stores_are_counted_by_operator_and_name(tmp_path: Path) -> None:
    for name in ("0/0/1.delta", "0/3/1.delta", "1/1/left-keys/1.delta", "1/0/_metadata/schema"):
        path = tmp_path / "state" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = StateTree.read(LocalDirectory(tmp_path))
    assert found.groups() == [("0", "", 4), ("1", "left-keys", 2)]
    assert found.metadata == ["state/1/0/_metadata/schema"]


def test_source_logs_are_needed_from_the_last_compacted_one_up_to_the_offset(
    tmp_path: Path,
) -> None:
    for name in ("0", "8", "9.compact", "10", "11", "12"):
        (tmp_path / "sources/0").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sources/0" / name).touch()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/5").write_text('v1\n{}\n{"logOffset":11}')
    logs = [p for p in log_paths(LocalDirectory(tmp_path), 5) if p.startswith("sources/")]
    assert sorted(logs) == ["sources/0/10", "sources/0/11", "sources/0/9.compact"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_limit_of_a_source_log_is_that_of_its_source_also_if_one_stands_twice(
    tmp_path: Path, version: str
) -> None:
    """Source 0 stands twice, so line 1 is not the one of source 1."""
    spark = tmp_path / "spark"
    for source, entries in {"0": range(3), "1": range(8)}.items():
        (spark / "sources" / source).mkdir(parents=True)
        for entry in entries:
            (spark / "sources" / source / str(entry)).write_text("{}")
    lines = ['{"logOffset":1}', '{"logOffset":1}', '{"logOffset":6}']
    if version == "v2":
        lines = [f"1:{lines[0]}", f"2:{lines[2]}"]
    for log in ("offsets", "commits"):
        (spark / log).mkdir()
        (spark / log / "5").write_text("\n".join([version, "{}", *lines]))
    (spark / "metadata").touch()
    uids = OperatorUids(source_lines=(0, 0, 1))
    ManifestWriter(LocalDirectory(tmp_path), LocalDirectory(spark), uids.by_directory).write(5)
    manifest = read_manifest(LocalDirectory(tmp_path), 5)
    assert manifest is not None
    needed = {f"sources/0/{n}" for n in range(2)} | {f"sources/1/{n}" for n in range(7)}
    assert {path for path in manifest.files if path.startswith("sources/")} == needed
    without_the_plan = set(log_paths(LocalDirectory(spark), 5))
    assert needed <= without_the_plan, "a restore copies these"


def with_checksum(tmp_path: Path, data: bytes, chunk: int = 16) -> tuple[Path, Path]:
    file, sidecar = tmp_path / "7.delta", tmp_path / ".7.delta.crc"
    sums = [zlib.crc32(data[i : i + chunk]) for i in range(0, len(data), chunk)]
    file.write_bytes(data)
    sidecar.write_bytes(b"crc\0" + struct.pack(f">i{len(sums)}I", chunk, *sums))
    return file, sidecar


@pytest.mark.parametrize("size", [0, 1, 16, 40, 48])
def test_a_file_that_matches_its_checksum_file(tmp_path: Path, size: int) -> None:
    file, sidecar = with_checksum(tmp_path, bytes(range(size)))
    assert local.verify(file) == size
    sidecar.unlink()
    assert local.verify(file) == size


def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    data = bytes(range(40))
    file, _ = with_checksum(tmp_path, data)
    bad = [data[:size] for size in range(40)] + [data + b"x" * more for more in (1, 8, 9)]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        bad.append(bytes(flipped))
    for content in bad:
        file.write_bytes(content)
        with pytest.raises(CorruptRecordError, match=r"7\.delta"):
            local.verify(file)


@pytest.mark.parametrize("stored", [b"", b"crc\0", b"crc\0\0\0\0\0", b"crC\0\0\0\0\x10abcd"])
def test_a_damaged_checksum_file_is_named(tmp_path: Path, stored: bytes) -> None:
    file, sidecar = with_checksum(tmp_path, b"abcd")
    sidecar.write_bytes(stored)
    with pytest.raises(CorruptRecordError, match=r"\.7\.delta\.crc: this checksum file is damaged"):
        local.verify(file)


def test_of_an_operators_metadata_one_file_holds_at_an_epoch() -> None:
    v1, v2 = "state/0/_metadata/metadata", "state/1/_metadata/v2"
    schema = "state/1/_stateSchema/default/0_a"
    paths = [v1, f"{v2}/2", f"{v2}/10", f"{v2}/3", schema]
    assert sorted(metadata_at(paths, 9)) == [v1, f"{v2}/3", schema]
    assert sorted(metadata_at(paths, 10)) == [v1, f"{v2}/10", schema]
    # Spark has deleted the files of epoch 1.
    assert sorted(metadata_at(paths, 1)) == [v1, f"{v2}/2", schema]
