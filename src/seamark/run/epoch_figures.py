"""Measures an epoch after its decision, from Spark's progress report and the sizes in storage.

`checkpoint/statistics_recorder.py` calls `measure`. A partition's store has, with V = epoch + 1:

| backend | uploaded by the epoch | read by a restore |
|---|---|---|
| hashmap | ``V.delta`` | the latest ``*.snapshot`` up to V, each ``*.delta`` after it |
| RocksDB | ``V.zip``, and its SST files without those of the zip before it | ``V.zip`` and its SST files |
| RocksDB, changelog | ``V.changelog`` | the latest ``*.zip`` up to V, its SST files, each ``*.changelog`` after it |

Names may have a unique id after V (``V_<id>.delta``, Spark's state format 2).
"""  # noqa: E501 - a table

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.flow_figures import LATE_ROWS
from seamark.checkpoint.spark_files import StateTree, zip_references
from seamark.checkpoint.statistics import EpochFigures, OperatorFigures
from seamark.files import Directory
from seamark.model.durations import moment_text
from seamark.model.rates import OFFSETS_BEHIND, WATERMARK
from seamark.spark.operator_uids import OperatorUids

log = logging.getLogger(__name__)

REPORT_PATIENCE_S = 1.0
"""How long to wait for Spark's report of an epoch, once the epoch is decided."""

_AHEAD_S = 86_400.0
_CYCLE_YEARS, _CYCLE_MS = 400, 146_097 * 86_400_000
"""Of the calendar, which then begins anew."""

Sizes = dict[int, dict[int, tuple[int, int]]]
"""By operator and partition: bytes uploaded by the epoch, bytes read by a restore of it."""


class StateSizes:
    """Sizes of the state below one Spark checkpoint location. Remembers the zips it has read."""

    def __init__(self, files: Directory) -> None:
        self._files = files
        self._named: dict[str, Mapping[str, int]] = {}

    def of(self, epochs: Sequence[int]) -> dict[int, Sizes]:
        """Return the sizes of each of the epochs, from one listing. Of several attempts at a
        version one counts."""
        tree = StateTree.read(self._files)
        for versions in tree.stores.values():
            for files in versions.values():
                files[:] = {file.kind: file for file in files}.values()
        self._named = {path: named for path, named in self._named.items() if path in tree.sizes}
        return {epoch: self._at(tree, epoch + 1) for epoch in epochs}

    def _at(self, tree: StateTree, version: int) -> Sizes:
        sizes: Sizes = {}
        for store in tree.stores:
            operator, partition = map(int, store.split("/")[:2])
            parts = sizes.setdefault(operator, {})
            new, full = parts.get(partition, (0, 0))
            needed = [p for p in tree.chain(store, version)[0] if not p.endswith(".crc")]
            full += sum(tree.sizes[path] + sum(self._names(path).values()) for path in needed)
            parts[partition] = (new + self._uploaded(tree, store, version), full)
        return sizes

    def _uploaded(self, tree: StateTree, store: str, version: int) -> int:
        versions = tree.stores[store]
        at = {file.kind: file.name for file in versions.get(version, ())}
        if "zip" not in at or "changelog" in at:
            return sum(tree.sizes[at[kind]] for kind in ("delta", "changelog") if kind in at)
        zips = {v: f.name for v, files in versions.items() for f in files if f.kind == "zip"}
        before = max((v for v in zips if v < version), default=None)
        older = {} if before is None else self._names(zips[before])
        named = self._names(at["zip"]).items()
        return tree.sizes[at["zip"]] + sum(size for name, size in named if name not in older)

    def _names(self, path: str) -> Mapping[str, int]:
        """Return the files named by a zip of RocksDB's, with their bytes; none of another file."""
        if not path.endswith(".zip"):
            return {}
        if path not in self._named:
            try:
                named = zip_references(self._files, path)
                self._named[path] = {name: size or 0 for name, size in named}
            except FileNotFoundError:  # deleted since it was listed: too old to matter
                return {}
        return self._named[path]


@dataclass(eq=False)
class SparkFigures:
    """Measures one query's epochs. `records` is the job's directory, `spark` its Spark checkpoint
    location; `query` returns the query once it runs."""

    records: Directory
    spark: Directory
    uids: OperatorUids
    query: Callable[[], StreamingQuery | None]

    def __post_init__(self) -> None:
        self._state = StateSizes(self.spark)
        self._told_late = set[str]()

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
                    *self._told(epoch, self._operators(reports.get(epoch, {}), state[epoch])),
                ),
            )
            for epoch in epochs
        }

    def _told(self, epoch: int, operators: Sequence[OperatorFigures]) -> Sequence[OperatorFigures]:
        """Return `operators`; log, once for each, that it has dropped rows as late: Spark counts
        them, and says no word."""
        for operator in operators:
            late, watermark_ms = (operator.metrics.get(key, 0) for key in (LATE_ROWS, WATERMARK))
            if late and operator.uid not in self._told_late:
                self._told_late.add(operator.uid)
                ahead = watermark_ms > (time.time() + _AHEAD_S) * 1e3
                log.warning(
                    "operator %s: epoch %d has dropped rows older than its watermark, which is at "
                    "%s%s. Further ones of this run are only counted (the metric "
                    "operator_late_records_dropped)",
                    operator.uid, epoch, moment_text(watermark_ms),
                    ", far ahead of this machine's clock: some row had such a time; filter such "
                    "rows out before withWatermark" if ahead else "",
                )  # fmt: skip
        return operators

    def _reports(self, epochs: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return Spark's progress reports by epoch. Spark keeps the last 100."""
        query = self.query()
        if query is None:
            return {}
        deadline = time.monotonic() + REPORT_PATIENCE_S
        reports: dict[int, dict[str, Any]] = {}
        while True:
            recent = query._jsq.recentProgress()
            for index in range(len(recent) - 1, -1, -1):
                report = recent[index]
                epoch = int(report.batchId())
                if epoch < min(epochs):
                    break
                if epoch in epochs and epoch not in reports:
                    body = json.loads(report.json())
                    if "addBatch" in body["durationMs"]:  # else the report of an idle trigger
                        reports[epoch] = body
            if max(epochs) in reports or not query.isActive or time.monotonic() > deadline:
                return reports
            time.sleep(0.05)

    def _record_bytes(self, epoch: int) -> int:
        ours = self.records.tree(f"epochs/{epoch}")
        logs = ["offsets", "commits", *(f"sources/{name}" for name in self.spark.list("sources"))]
        return sum(ours.values()) + sum(self.spark.size(f"{log}/{epoch}") or 0 for log in logs)

    def _sources(self, report: Mapping[str, Any]) -> Sequence[OperatorFigures]:
        return [
            OperatorFigures(
                uid=self.uids.of_source(index),
                kind="source",
                name=source["description"],
                rows=source["numInputRows"],
                metrics={
                    **_whole_numbers(source.get("metrics") or {}),
                    **_behind(source),
                    **_watermark(report),  # Spark has one for all sources, the least
                },
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
    """Return the watermark of the epoch's operators, in ms since 1970; {} while Spark has none."""
    text = (report.get("eventTime") or {}).get("watermark")
    if text is None:
        return {}
    # Python's calendar ends in 9999, and a mistaken unit in a row is far beyond; it reads "Z" only
    # from 3.11 on.
    year, rest = re.findall(r"^\+?(\d+)(.*)$", str(text).replace("Z", "+00:00"))[0]
    cycles = max(0, (int(year) - 2000) // _CYCLE_YEARS)
    at = datetime.fromisoformat(f"{int(year) - cycles * _CYCLE_YEARS:04}{rest}")
    watermark_ms = round(at.timestamp() * 1e3) + cycles * _CYCLE_MS
    return {WATERMARK: watermark_ms} if watermark_ms > 0 else {}


def _whole_numbers(metrics: Mapping[str, Any]) -> dict[str, int]:
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = round(float(value))
        except (TypeError, ValueError, OverflowError):  # a text, or no number yet
            continue
    return numbers
