"""What an executor's Python needs: pyarrow, numpy, PySpark, and the drivers of its sinks.

How: a Python process that refuses to import anything else of Seamark's dependencies gets a job's
task as Spark sends it, and runs it as Spark's worker does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

import seamark as sm
from seamark.files.settings import HadoopSettings
from seamark.run.layout import Layout
from seamark.run.pre_commit import ORDER, Order, pre_commit
from seamark.run.task_attempt import EpochTasks

OF_DRIVERS = (
    "fastapi starlette uvicorn pydantic typer click rich prometheus_client pandas kafka tomli"
)
ROOMS = ("model", "files", "contracts", "protocol", "sinks", "sources")
OF_WORKERS = (
    "run.pre_commit",
    "run.dead_letters",
    "run.in_flight",
    "run.keyed_operator",
    "run.keyed_process",
    "spark.datagen",
    "spark.socket_lines",
    "spark.worker_daemon",
)
"""What a task imports of `seamark.run` and `seamark.spark`."""

REFUSE = """
asked = []

class Refused:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
        if name.partition(".")[0] in {refused!r}.split():
            raise ModuleNotFoundError(f"not on an executor: {{name}}", name=name)

sys.meta_path.insert(0, Refused())
"""
TASK = """
import pickle, sys
from pathlib import Path

{refuse}
from pyspark import TaskContext
run, batch, order = pickle.loads(Path({task!r}).read_bytes())
task = TaskContext._getOrCreate()
task._partitionId, task._attemptNumber, task._taskAttemptId = 0, 0, 0
task._localProperties = order
(told,) = run(iter([batch]))
print("pandas" in asked, pickle.loads(told.column(0)[0].as_py())[1].sinks["files"].rows)
"""
IMPORTS = """
import importlib, pkgutil, sys
{refuse}
names = [
    module.name
    for room in {rooms!r}
    for module in pkgutil.walk_packages(
        importlib.import_module("seamark." + room).__path__, "seamark." + room + "."
    )
]
for name in [*names, *("seamark." + name for name in {others!r})]:
    importlib.import_module(name)
print(len(names))
try:
    import seamark.rest.server
except ModuleNotFoundError as error:
    print(error)
"""
KINDS = {
    "n": pa.int16(), "yes": pa.bool_(), "x": pa.float32(), "text": pa.string(),
    "at": pa.timestamp("us", "UTC"), "amount": pa.decimal128(9, 2), "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.int32()), "struct": pa.struct({"n": pa.int64()}),
}  # fmt: skip


def test_a_task_runs_without_what_only_drivers_need(tmp_path: Path) -> None:
    (tmp_path / "out/_seamark/pending").mkdir(parents=True)  # as the driver does
    job = EpochTasks(
        layout=Layout(("files",), tuple(KINDS)),
        sinks={"files": sm.FileSink(tmp_path / "out", format="parquet")},
        dead_letters={},
        job_id="0" * 32,
        generation=1,
        hadoop=HadoopSettings(),
        spool_uris={"files": (tmp_path / "spool").as_uri()},
        channel_state_uri=(tmp_path / "channel-state").as_uri(),
        processes={},
    )
    row = [1, True, 0.5, "a", 0, Decimal("1.00"), [1, 2], [("a", 1)], {"n": 1}]
    columns = [
        pa.array([one, None, one], kind) for one, kind in zip(row, KINDS.values(), strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, [f"c{place}" for place in range(len(columns))])
    properties = {ORDER: Order(0, -1).to_text()}
    (tmp_path / "task").write_bytes(cloudpickle.dumps((pre_commit(job), batch, properties)))
    said = run(TASK.format(refuse=REFUSE.format(refused=OF_DRIVERS), task=str(tmp_path / "task")))
    # pyarrow would import pandas where it is installed, for half a second of each worker's CPU.
    assert said.split()[-2:] == ["False", "3"]


def test_each_module_of_a_worker_is_imported_without_what_only_drivers_need() -> None:
    refuse = REFUSE.format(refused=OF_DRIVERS)
    said = run(IMPORTS.format(refuse=refuse, rooms=ROOMS, others=OF_WORKERS))
    count, refused = said.splitlines()
    assert int(count) > 100
    assert refused.startswith("not on an executor: ")


def run(code: str) -> str:
    """Return what a program prints that sees all packages of this one."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
