"""Epochs read from outside: which source rows are in which epoch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from seamark.verify.epochs import EpochWatch


def epoch(job: Path, number: int, ends: dict[str, int], *, committed: bool = True) -> None:
    for log in ("spark/offsets", "spark/commits", f"epochs/{number}"):
        (job / log).mkdir(parents=True, exist_ok=True)
    offsets = ["v1", "{}", json.dumps({"in": ends})]
    (job / "spark/offsets" / str(number)).write_text("\n".join(offsets))
    if committed:
        (job / "spark/commits" / str(number)).write_text("v1\n{}")
        (job / "epochs" / str(number) / "committed.json").write_text("{}")


def epochs_of(watch: EpochWatch, *rows: tuple[int, int]) -> list[int]:
    partitions, offsets = np.array(rows, np.int64).T
    return watch.epochs_of("in", partitions, offsets).tolist()


def test_rows_get_the_epoch_that_read_them(tmp_path: Path) -> None:
    watch = EpochWatch(tmp_path)
    assert watch.look() == []
    epoch(tmp_path, 0, {"0": 5, "1": 0})
    epoch(tmp_path, 1, {"0": 5, "1": 2})
    epoch(tmp_path, 2, {"0": 9, "1": 3}, committed=False)
    assert [found.number for found in watch.look()] == [0, 1]
    assert epochs_of(watch, (0, 0), (0, 4), (1, 0), (1, 1)) == [0, 0, 1, 1]
    assert epochs_of(watch, (0, 5), (1, 2), (7, 0)) == [-1, -1, -1], "not known yet"
    epoch(tmp_path, 2, {"0": 9, "1": 3})
    watch.look()
    assert epochs_of(watch, (0, 5), (1, 2)) == [2, 2]


def test_rows_after_an_epoch_that_was_missed_are_in_no_known_epoch(tmp_path: Path) -> None:
    watch = EpochWatch(tmp_path)
    epoch(tmp_path, 0, {"0": 5})
    epoch(tmp_path, 2, {"0": 9})
    watch.look()
    assert epochs_of(watch, (0, 4), (0, 5)) == [0, -1]


def test_rows_before_the_end_of_an_epoch_whether_or_not_others_were_missed(tmp_path: Path) -> None:
    watch = EpochWatch(tmp_path)
    epoch(tmp_path, 2, {"0": 9})
    (found,) = watch.look()
    rows = np.array([(0, 0), (0, 8), (0, 9), (3, 0), (-1, -1)], np.int64)
    assert watch.is_before(found, "in", *rows.T).tolist() == [True, True, False, False, False]
    assert not watch.is_before(found, "out", *rows.T).any()


def test_the_newest_plan(tmp_path: Path) -> None:
    watch = EpochWatch(tmp_path)
    assert watch.planned() == -1
    epoch(tmp_path, 3, {"0": 5}, committed=False)
    assert watch.planned() == 3
    assert watch.look() == []
