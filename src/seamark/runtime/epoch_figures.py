"""Measures an epoch after its decision, from Spark's progress report and the sizes in storage.

`checkpoint/statistics_recorder.py` calls `measure` on its own thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.statistics import EpochFigures, OperatorFigures
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.rates import OFFSETS_BEHIND, WATERMARK
from seamark.runtime.operator_uids import OperatorUids
from seamark.runtime.state_sizes import Sizes, StateSizes

REPORT_PATIENCE_S = 1.0
"""How long to wait for Spark's report of an epoch, once the epoch is decided."""


@dataclass(eq=False)
class SparkFigures:
    """Measures one query's epochs. `records` is the job's directory, `spark` its Spark checkpoint
    location; `query` returns the query once it runs."""

    records: CheckpointFiles
    spark: CheckpointFiles
    uids: OperatorUids
    query: Callable[[], StreamingQuery | None]

    def __post_init__(self) -> None:
        self._state = StateSizes(self.spark)

    def measure(self, epochs: Sequence[int]) -> Mapping[int, EpochFigures]:
        """Return the figures of these decided epochs, as far as they can be found."""
        reports = self._reports(epochs)
        state = self._state.of(epochs)
        return {
            epoch: EpochFigures(
                record_bytes=self._record_bytes(epoch),
                spark_durations=reports.get(epoch, {}).get("durationMs", {}),
                operators=(
                    *self._sources(reports.get(epoch, {})),
                    *self._operators(reports.get(epoch, {}), state[epoch]),
                ),
            )
            for epoch in epochs
        }

    def _reports(self, epochs: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return Spark's progress reports by epoch. Spark keeps the last 100."""
        query = self.query()
        if query is None:
            return {}
        deadline = time.monotonic() + REPORT_PATIENCE_S
        found: dict[int, dict[str, Any]] = {}
        while True:
            recent = query._jsq.recentProgress()
            for index in range(len(recent) - 1, -1, -1):
                report = recent[index]
                epoch = int(report.batchId())
                if epoch < min(epochs):
                    break
                if epoch in epochs and epoch not in found:
                    body = json.loads(report.json())
                    if "addBatch" in body["durationMs"]:  # else the report of an idle trigger
                        found[epoch] = body
            if max(epochs) in found or not query.isActive or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def _record_bytes(self, epoch: int) -> int:
        ours = self.records.sizes(f"epochs/{epoch}/*")
        sparks = self.spark.sizes(f"offsets/{epoch}", f"commits/{epoch}", f"sources/*/{epoch}")
        return sum(ours.values()) + sum(sparks.values())

    def _sources(self, report: Mapping[str, Any]) -> Sequence[OperatorFigures]:
        return [
            OperatorFigures(
                uid=self.uids.of_source(index),
                kind="source",
                name=source["description"],
                rows=source["numInputRows"],
                metrics={**_whole_numbers(source.get("metrics") or {}), **_behind(source)},
            )
            for index, source in enumerate(report.get("sources", ()))
        ]

    def _operators(self, report: Mapping[str, Any], state: Sizes) -> Sequence[OperatorFigures]:
        reported = report.get("stateOperators", ())
        watermark = _watermark(report)
        operators = []
        for index in sorted({*state, *range(len(reported))}):
            operator = reported[index] if index < len(reported) else {}
            plain = {key: value for key, value in operator.items() if key != "customMetrics"}
            operators.append(
                OperatorFigures(
                    uid=self.uids.of_operator(index),
                    kind="operator",
                    name=operator.get("operatorName", "stateful operator"),
                    rows=operator.get("numRowsUpdated", 0),
                    sizes=state.get(index, {}),
                    metrics={
                        **_whole_numbers({**plain, **operator.get("customMetrics", {})}),
                        **watermark,
                    },
                )
            )
        return operators


def _behind(source: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of rows left in the source after an epoch, if the source reports it
    (Kafka's does). Spark reports only the mean over the partitions."""
    mean = (source.get("metrics") or {}).get("avgOffsetsBehindLatest")
    latest = source.get("latestOffset")
    if mean is None or not isinstance(latest, Mapping):
        return {}
    partitions = sum(len(of_topic) for of_topic in latest.values())
    return _whole_numbers({OFFSETS_BEHIND: float(mean) * partitions})


def _watermark(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the watermark of the epoch's operators, in ms since 1970; {} while there is none, when
    Spark reports 1970."""
    text = (report.get("eventTime") or {}).get("watermark")
    if text is None:
        return {}
    found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))  # Python 3.10 reads no Z
    watermark_ms = round(found.timestamp() * 1e3)
    return {WATERMARK: watermark_ms} if watermark_ms > 0 else {}


def _whole_numbers(metrics: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = round(float(value))
        except (TypeError, ValueError, OverflowError):  # a text, or no number yet
            continue
    return found
