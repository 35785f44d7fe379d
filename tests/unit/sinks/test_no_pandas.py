"""What a task of a database's or Redis's sink, or of one with `op=`, makes of its rows."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

import pyarrow as pa

from seamark.contracts.record_batches import constants
from seamark.sinks.internal.changes import unfit
from seamark.sinks.postgres.copy_format import rows
from seamark.sinks.postgres.types import ColumnType

TYPES = {
    "bool": pa.bool_(), "int2": pa.int16(), "int8": pa.int64(), "float4": pa.float32(),
    "numeric": pa.decimal128(9, 2), "date": pa.date32(), "timestamptz": pa.timestamp("us", "UTC"),
    "text": pa.string(), "bytea": pa.binary(), "jsonb": pa.string(), "uuid": pa.string(),
    "varchar": pa.string(),
}
columns = [pa.nulls(3, kind) for kind in TYPES.values()]
columns += [pa.nulls(3, pa.list_(kind)) for kind in TYPES.values()]
batch = pa.RecordBatch.from_arrays(columns, [f"c{n}" for n in range(len(columns))])
whole = [ColumnType(name, 1, name, 9) for name in TYPES]
arrays = [ColumnType("array", 1, one.name, element=one) for one in whole]
print(len(rows(batch, whole + arrays)))
ops = constants(b"insert", b"delete").view(pa.string())
batch = pa.RecordBatch.from_arrays([ops, pa.nulls(2, pa.int64())], ["op", "id"])
print(len(unfit(batch, ["id"], "op", nan_is_null=True)))
print("pandas" in sys.modules)
"""
OTHERS = """
import sys
from itertools import product

import pyarrow as pa

from seamark.contracts.record_batches import constants, integers
from seamark.sinks.mysql.loading import load_data_text, values_text
from seamark.sinks.redis.rows import Layout, blocks, unfit

TYPES = [
    pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2),
    pa.decimal128(38, 18), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(),
    pa.binary(), pa.null(),
]
some = integers([0, -1, 5])
columns = [pa.concat_arrays([some.cast(kind)[1:], pa.nulls(1, kind)]) for kind in TYPES[1:3]]
columns += [pa.nulls(3, kind) for kind in TYPES]
columns += [some.cast(kind) for kind in (pa.timestamp("us", "UTC"), pa.float64(), pa.string())]
batch = pa.RecordBatch.from_arrays(columns, [f"c{n}" for n in range(len(columns))])
print(len(bytes(load_data_text(batch))) > 9, sum(rows for _, rows in values_text(batch, 99)))
texts = constants(b"a", b"'", b"delete").view(pa.string())
ops = constants(b"insert", b"update", b"delete").view(pa.string())
columns = [texts, pa.nulls(3, pa.string()), texts.cast(pa.large_string()), ops]
batch = pa.RecordBatch.from_arrays(columns, ["key", "none", "value", "op"])
for value, op, mset in product((None, "none", "value"), (None, "op"), (False, True)):
    layout = Layout("key", value, "p", None, op)
    assert not unfit(batch, layout)
    print(sum(block.rows for block in blocks(batch, layout, mset=mset)))
print("pandas" in sys.modules)
"""


def test_no_task_imports_pandas() -> None:
    """pyarrow would, for half a second of each new worker's CPU."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.split() == [str(3 * (2 + 4 * 24)), "2", "False"], done.stderr


def test_nor_does_one_of_mysql_or_redis() -> None:
    done = subprocess.run([sys.executable, "-c", OTHERS], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "3", *["3"] * 12, "False"], done.stderr
