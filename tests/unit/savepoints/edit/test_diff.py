"""The findings of `diff` on two savepoints, on values alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seamark.files.local import LocalDirectory
from seamark.savepoints.edit.diff import Difference, diff
from seamark.savepoints.record import Source
from tests.unit.savepoints.test_record import a_savepoint


def test_the_same_state_at_another_time_and_place_is_no_difference(tmp_path: Path) -> None:
    savepoint = a_savepoint(LocalDirectory(tmp_path))
    later = replace(savepoint, created_at=99.0, uri="file:/elsewhere", files={"other": (1, 2)})
    assert diff(savepoint, later) == []


def test_everything_that_differs_is_named_once(tmp_path: Path) -> None:
    old = a_savepoint(LocalDirectory(tmp_path))
    (operator,) = old.operators
    (store,) = operator.stores
    first, second = store.families
    families = (replace(first, rows=5), replace(second, value_schema={}))
    new = replace(
        old,
        epoch=9,
        settings={"spark.sql.shuffle.partitions": "6"},
        values_by={"spark.sql.session.timeZone": "UTC"},
        sources=(replace(old.sources[0], offset={"clicks": {"0": 8}}), Source("more", 2, None)),
        operators=(
            replace(operator, stores=(replace(store, families=families),)),
            replace(operator, uid="per-hour"),
        ),
        committables={},
    )
    offsets = ({"clicks": {"0": 5}}, {"clicks": {"0": 8}})
    assert diff(old, new) == [
        Difference("savepoint", "", "epoch", 7, 9),
        Difference("savepoint", "", "spark.sql.shuffle.partitions", "3", "6"),
        Difference("savepoint", "", "spark.sql.session.timeZone", None, "UTC"),
        Difference("source", "clicks", "offset", *offsets),
        Difference("source", "rates", "present", True, False),
        Difference("source", "more", "present", False, True),
        Difference("operator", "per-minute", "rows", 3, 5),
        Difference("operator", "per-minute", "more value schema", second.value_schema, {}),
        Difference("operator", "per-hour", "present", False, True),
        Difference("sink", "to-kafka", "present", True, False),
    ]
