"""The parts of a restore without Spark: the offset log's entry, and a backend's refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seamark.files.local import LocalDirectory
from seamark.savepoints.record import ColumnFamily, Operator, Store
from seamark.savepoints.restore.location import Placement, _offsets
from seamark.savepoints.state.layout import hashmap_problems
from tests.unit.savepoints.test_record import LONG, a_savepoint

ENTRY = (
    b'v1\n{"batchWatermarkMs":5,"conf":{"a":"b","spark.sql.shuffle.partitions":"3"}}\n{"x":1}\n-'
)


def family(name: str = "default", *, several: bool = False) -> ColumnFamily:
    return ColumnFamily(name, "rows", LONG, LONG, {}, several, False)


def operator(name: str, *families: ColumnFamily) -> Operator:
    return Operator(
        "mine", 0, name, 3, True, None, (Store("default", "state/0/default", families),)
    )


def test_sources_take_their_offsets_to_their_new_places(tmp_path: Path) -> None:
    savepoint = a_savepoint(LocalDirectory(tmp_path))
    placement = Placement({}, {"clicks": 2, "rates": 0})
    settings = {"spark.sql.shuffle.partitions": "6"}
    version, metadata, *lines = _offsets(ENTRY, savepoint, placement, settings).decode().split("\n")
    assert version == "v1"
    assert json.loads(metadata)["conf"] == {"a": "b", "spark.sql.shuffle.partitions": "6"}
    assert json.loads(metadata)["batchWatermarkMs"] == 5
    assert lines == ["-", "-", '{"x":1}']  # the second had none; one of the new program's is new


def test_a_source_without_a_place_is_dropped(tmp_path: Path) -> None:
    placement = Placement({}, {"rates": 0})
    data = _offsets(ENTRY, a_savepoint(LocalDirectory(tmp_path)), placement, {})
    assert data.decode().split("\n")[2:] == ["-"]


@pytest.mark.parametrize(
    "refused",
    [
        operator("transformWithStateInPySparkExec", family()),
        operator("symmetricHashJoin", family(), family("more")),
        operator("symmetricHashJoin", family(several=True)),
    ],
)
def test_what_the_hashmap_backend_cannot_hold_is_refused_by_name(refused: Operator) -> None:
    (problem,) = hashmap_problems([refused])
    assert problem.startswith(f"operator 'mine' ({refused.name}): the hashmap backend cannot hold")


def test_an_operator_with_one_plain_family_goes_anywhere() -> None:
    assert not hashmap_problems([operator("stateStoreSave", family())])
    assert not hashmap_problems([replace(operator("dedupe", family()), partitions=1)])
