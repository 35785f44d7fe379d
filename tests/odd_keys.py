"""Keys that are equal to the target in more than one form: 0.0 and -0.0, NaN with any bits.

How: seeded changes of a few numbers in all their forms, many of one key in an epoch; the table must
equal a dict of Python's, to which they are equal too. NaN counts as one key.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from seamark.contracts.sink import CommitOutcome, SinkContext, TwoPhaseCommitSink
from seamark.model.schema import Column
from seamark.verify.conformance.steps import JOB, UID, attempt

ZEROS = (0.0, -0.0)
INFINITE = (math.inf, -math.inf)
NANS = (math.nan, *struct.unpack("<2d", bytes.fromhex("010000000000f8ff000000000000f8ff")))
"""NaN with the bits of Java, of C, and others."""


def changed_at_random(
    sink: TwoPhaseCommitSink[Any],
    rows: Callable[[], list[tuple[Any, str]]],
    keys: tuple[float, ...],
    *,
    kind: str = "double",
) -> None:
    """Change a table of `id` and `text` by `sink`, with op if it has one, made by it."""
    with_op = getattr(sink, "op", None) is not None
    columns = (Column("id", kind), Column("text", "string"), Column("op", "string"))
    schema = columns if with_op else columns[:2]
    committer = sink.create_committer(SinkContext(JOB, "orders", UID, 1, 5.0, schema))
    committer.preflight()
    chance, expected = random.Random(7), dict[Any, str]()
    for epoch in range(8):
        writer = sink.create_writer(attempt(epoch=epoch))
        for number in range(3):
            ids = [chance.choice(keys) for _ in range(chance.randrange(1, 5))]
            texts = [f"{epoch} {number} {place}" for place in range(len(ids))]
            ops = [chance.choice(("insert", "delete")) for _ in ids]
            arrow = pa.float64() if kind == "double" else pa.float32()
            batch = pa.record_batch([pa.array(ids, arrow), texts], names=["id", "text"])
            writer.write(batch.append_column("op", pa.array(ops)) if with_op else batch)
            for key, text, op in zip(ids, texts, ops, strict=True):
                expected.pop(one(key), None)
                if op == "insert" or not with_op:
                    expected[one(key)] = text
        (outcome,) = committer.commit(list(writer.prepare_commit()))
        assert outcome is CommitOutcome.COMMITTED
        found = rows()
        assert same(found) == expected, f"epoch {epoch}"
        assert len(found) == len(expected)
    committer.close()


def one(key: float) -> Any:
    """Return one object for each NaN."""
    return "NaN" if math.isnan(float(key)) else float(key)


def same(rows: list[tuple[Any, str]]) -> Mapping[Any, str]:
    return {one(key): text for key, text in rows}
