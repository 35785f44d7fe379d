"""Plans, at a start, the epoch without rows that the run before still owed.

An epoch raises the watermark for the next one, and Spark runs a next one without rows to close the
windows that are due. It forgets that over a restart (`MicroBatchExecution.constructNextBatch` asks
the last execution of the same run), so what was due would wait for a new row. Here the start writes
this epoch's entry of the offset log; Spark finds it and runs it like one that was cut off.
"""

import json
import logging
import time

from seamark.checkpoint.envelope import storage_faults
from seamark.checkpoint.spark_files import read_log, with_metadata
from seamark.checkpoint.store import CheckpointStore

log = logging.getLogger(__name__)


def plan_closing_epoch(store: CheckpointStore, decided: int) -> None:
    """Plan the epoch after `decided`, at the same offsets, if `decided` has raised the watermark
    and nothing is planned after it.

    Called when older drivers are fenced and their epochs settled.
    """
    if decided < 0 or store.is_planned(decided + 1):
        return
    with storage_faults(store.uri, f"commits/{decided}", "read"):
        commit = read_log(store.spark_files, f"commits/{decided}")[0]
    watermark_ms = int(commit.get("nextBatchWatermarkMs") or 0)
    plan = store.read_plan(decided) or ""
    metadata = json.loads(plan.split("\n")[1])
    if watermark_ms <= int(metadata["batchWatermarkMs"]):
        return
    # Processing time never goes back, whatever this machine's clock says.
    metadata["batchTimestampMs"] = max(int(time.time() * 1000), int(metadata["batchTimestampMs"]))
    metadata["batchWatermarkMs"] = watermark_ms
    if store.plan_epoch(decided + 1, with_metadata(plan, metadata)):
        log.info("epoch %d has no rows: it closes what was due when the job ended", decided + 1)
