"""What a task of PostgresSink's, and of each sink with `op=`, makes of its rows."""

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


def test_no_task_imports_pandas() -> None:
    """pyarrow would, for half a second of each new worker's CPU."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.split() == [str(3 * (2 + 4 * 24)), "2", "False"], done.stderr
