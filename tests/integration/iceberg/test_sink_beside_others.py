"""Epoch after epoch into a table, while another program appends, deletes, compacts and expires:
each row is there once, or the newest of its key, and no file is left. How: until the other has
compacted often enough."""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path

import pyarrow as pa

from seamark.model.schema import Column
from seamark.verify.conformance.steps import DONE, until_proved
from tests.chaos.outputs import IcebergOutput
from tests.integration.iceberg.others import Others
from tests.integration.iceberg.sink_kit import attempt, driver, made

DEADLINE_S = 120


def test_each_row_is_there_once_beside_another_program(tmp_path: Path) -> None:
    out = IcebergOutput(tmp_path)
    columns = (Column("key", "string"), Column("value", "string"))
    sink = made(out.catalog, ["bucket(2, key)"], columns, "shop.clicks")
    committer = sink.create_committer(driver())
    end, rows, epoch = time.monotonic() + DEADLINE_S, 0, 0
    with Others(out.catalog, "shop.clicks") as others:
        while others.compactions < 5 and time.monotonic() < end:
            parts = []
            for task in range(2):
                keys = [f"k{n % 5}" for n in range(10)]
                values = [f"{rows + n},0" for n in range(10)]
                writer = sink.create_writer(attempt(epoch=epoch, partition=task))
                writer.write(pa.record_batch({"key": keys, "value": values}))
                parts += writer.prepare_commit()
                rows += 10
            assert set(until_proved(committer.commit, parts)) <= DONE
            assert set(until_proved(committer.commit, parts)) <= DONE
            epoch += 1
            time.sleep(0.3)  # else the other one never comes to its turn
        others.leave()
    assert others.compactions >= 5
    assert sorted(int(row.value.split(",")[0]) for row in out.rows()) == list(range(rows))
    assert out.left_open() == []


def test_each_key_has_its_newest_row_beside_another_program(tmp_path: Path) -> None:
    out = IcebergOutput(tmp_path)
    columns = (Column("key", "string"), Column("value", "string"))
    sink = made(out.catalog, ["truncate(1, key)"], columns, "shop.clicks")
    sink = dataclasses.replace(sink, mode="upsert", keys=["key"], op="op")
    committer = sink.create_committer(driver())
    end, epoch, chance, expected = time.monotonic() + DEADLINE_S, 0, random.Random(3), {}
    with Others(out.catalog, "shop.clicks") as others:
        while others.compactions < 5 and time.monotonic() < end:
            parts = []
            for task in ("a", "b"):
                keys = [f"{task}{chance.randrange(30)}" for _ in range(4)]
                values = [f"{epoch},{n}" for n in range(4)]
                ops = [chance.choice(["update", "update", "delete"]) for _ in range(4)]
                for key, value, op in zip(keys, values, ops, strict=True):
                    expected[key] = None if op == "delete" else value
                writer = sink.create_writer(attempt(epoch=epoch, partition="ab".index(task)))
                writer.write(pa.record_batch({"key": keys, "value": values, "op": ops}))
                parts += writer.prepare_commit()
            assert set(until_proved(committer.commit, parts)) <= DONE
            assert set(until_proved(committer.commit, parts)) <= DONE
            epoch += 1
            time.sleep(0.3)  # else the other one never comes to its turn
        others.leave()
    assert others.compactions >= 5
    found = [(row.key, row.value) for row in out.rows()]
    assert sorted(found) == sorted((k, v) for k, v in expected.items() if v is not None)
    left = [name for name in out.left_open() if not name.startswith("part-")]
    assert left == [], "replaced files stay until their snapshots are expired, no record does"
