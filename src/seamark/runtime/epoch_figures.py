"""Measures an epoch after its decision, from Spark's progress report and the sizes in storage.

`checkpoint/statistics_recorder.py` calls `measure`. A partition's store has, with V = epoch + 1:

| backend | uploaded by the epoch | read by a restore |
|---|---|---|
| hashmap | ``V.delta`` | the latest ``*.snapshot`` up to V, each ``*.delta`` after it |
| RocksDB | ``V.zip``, and its SST files without those of the zip before it | ``V.zip`` and its SST files |
| RocksDB, changelog | ``V.changelog`` | the latest ``*.zip`` up to V, its SST files, each ``*.changelog`` after it |

Names may have a unique id after V (``V_<id>.delta``, Spark's state format 2).
"""  # noqa: E501 - a table

import io
import json
import re
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.statistics import EpochFigures, OperatorFigures
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.rates import OFFSETS_BEHIND, WATERMARK
from seamark.runtime.operator_uids import OperatorUids

_FILE = re.compile(
    r"state/(\d+)/(\d+)(?:/([^/]+))?/(\d+)(?:_[^./]+)?\.(delta|snapshot|zip|changelog)"
)
_PATTERNS = ("state/*/*/*", "state/*/*/*/*")  # joins have several stores to a partition

Sizes = dict[int, dict[int, tuple[int, int]]]
"""By operator and partition: bytes uploaded by the epoch, bytes read by a restore of it."""
_Store = tuple[int, int, str]


class StateSizes:
    """Sizes of the state below one Spark checkpoint location. Remembers the zips it has read."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._named: dict[str, Mapping[str, int]] = {}

    def of(self, epochs: Sequence[int]) -> dict[int, Sizes]:
        """Return the sizes of each of the epochs, from one listing."""
        stores: dict[_Store, dict[int, dict[str, tuple[str, int]]]] = defaultdict(dict)
        listed = self._files.sizes(*_PATTERNS)
        for path, size in listed.items():
            if match := _FILE.fullmatch(path):
                store = (int(match[1]), int(match[2]), match[3] or "")
                stores[store].setdefault(int(match[4]), {})[match[5]] = (path, size)
        self._named = {path: named for path, named in self._named.items() if path in listed}
        return {epoch: self._at(stores, epoch + 1) for epoch in epochs}

    def _at(
        self, stores: Mapping[_Store, Mapping[int, Mapping[str, tuple[str, int]]]], version: int
    ) -> Sizes:
        sizes: Sizes = {}
        for (operator, partition, _), versions in stores.items():
            new, full = self._of_store(versions, version)
            parts = sizes.setdefault(operator, {})
            before = parts.get(partition, (0, 0))
            parts[partition] = (before[0] + new, before[1] + full)
        return sizes

    def _of_store(
        self, versions: Mapping[int, Mapping[str, tuple[str, int]]], version: int
    ) -> tuple[int, int]:
        known = sorted(v for v in versions if v <= version)
        whole = [v for v in known if not versions[v].keys().isdisjoint(("snapshot", "zip"))]
        full, base = 0, -1
        if whole:
            base = whole[-1]
            full = self._whole(versions[base])
        full += sum(_changes(versions[v]) for v in known if v > base)
        at = versions.get(version, {})
        if "zip" not in at or "changelog" in at:
            return _changes(at), full
        named = self._names(at["zip"][0])
        before = [v for v in whole[:-1] if "zip" in versions[v]]
        older = self._names(versions[before[-1]]["zip"][0]) if before else {}
        new = sum(size for name, size in named.items() if name not in older)
        return at["zip"][1] + new, full

    def _whole(self, at: Mapping[str, tuple[str, int]]) -> int:
        if "snapshot" in at:
            return at["snapshot"][1]
        path, size = at["zip"]
        return size + sum(self._names(path).values())

    def _names(self, path: str) -> Mapping[str, int]:
        """Return the files named by a zip of RocksDB's, with their bytes."""
        if path not in self._named:
            try:
                self._named[path] = _named_in(self._files.read(path))
            except FileNotFoundError:  # deleted since it was listed: too old to matter
                return {}
        return self._named[path]


def _changes(at: Mapping[str, tuple[str, int]]) -> int:
    return sum(at[kind][1] for kind in ("delta", "changelog") if kind in at)


def _named_in(data: bytes) -> Mapping[str, int]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _, body = archive.read("metadata").decode().split("\n", 1)
    metadata = json.loads(body)
    return {
        entry.get("dfsSstFileName") or entry.get("dfsLogFileName") or entry["localFileName"]: int(
            entry["sizeBytes"]
        )
        for entry in [*metadata.get("sstFiles", []), *metadata.get("logFiles", [])]
    }


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
    """Return the watermark of the epoch's operators, in ms since 1970; {} while Spark has none."""
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
