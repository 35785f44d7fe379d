"""What an epoch of changes by key costs in a table of files: all of it is copy-on-write.

    python -m benchmarks.upserts [--rows 1000000] [--files 20] [--rounds 5] [--only Iceberg]

A table of rows of about 100 bytes lies in files sorted by key. An epoch of 1,000 changes has its
keys in one file, in a tenth of the files, or in all of them; it is staged and then committed. The
time is the commit's, the median of the rounds: by the clock, and of the processors, which other
work on the machine does not change much; beside the bytes of the files it has written. "none"
is an epoch of new keys, which touches no file. Each round has keys of its own, and runs every
variant of both sinks in turn.
Memory is the process's own peak, before the first change and at the end.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import seamark as sm
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.schema import Column

CHANGES = 1_000
SCHEMA = (Column("id", "bigint"), Column("text", "string"))


def rows(ids: Any) -> pa.RecordBatch:
    """Return rows of about 100 bytes that do not compress well."""
    noise = np.random.default_rng(int(ids[0])).integers(0, 16, (len(ids), 92), np.uint8) + 97
    texts = pa.StringArray.from_buffers(
        len(ids), pa.py_buffer(np.arange(0, 92 * len(ids) + 1, 92, np.int32)), pa.py_buffer(noise)
    )
    return pa.record_batch([pa.array(ids, pa.int64()), texts], names=["id", "text"])


class Table:
    """A sink with its committer, epoch after epoch."""

    def __init__(self, sink: Any, plain: Any, below: Path) -> None:
        self._below = below
        self._sink, self._plain = sink, plain
        self._committer = sink.create_committer(SinkContext("b", "b", "b", 1, 5.0, SCHEMA))
        self._committer.preflight()
        self._epoch = 0

    def commit(
        self, batches: Iterator[pa.RecordBatch], *, append: bool = False
    ) -> tuple[float, float]:
        """Write the batches in one task; return the seconds of their commit, by the clock and of
        the processors."""
        context = WriterContext("b", "b", 1, self._epoch, 0, 0, self._epoch - 1)
        self._epoch += 1
        writer = (self._plain if append else self._sink).create_writer(context)
        for batch in batches:
            writer.write(batch)
        prepared = writer.prepare_commit()
        begun = time.perf_counter(), time.process_time()
        (outcome,) = self._committer.commit(prepared)
        assert outcome.name == "COMMITTED", outcome
        return time.perf_counter() - begun[0], time.process_time() - begun[1]

    def stored(self) -> int:
        """Return the bytes of all files, replaced ones too."""
        return sum(path.stat().st_size for path in self._below.rglob("part-*.parquet"))


def tables(base: Path) -> dict[str, Table]:
    """Return both kinds of table, empty."""
    catalog = {
        "type": "sql", "uri": f"sqlite:///{base}/catalog.db", "warehouse": f"file://{base}/ice",
    }  # fmt: skip
    ice = sm.IcebergSink("shop.t", catalog, create_table=True, mode="upsert", keys=["id"])
    delta = sm.DeltaSink(str(base / "delta"), create_table=True, keys=["id"])
    return {
        "IcebergSink": Table(ice, sm.IcebergSink("shop.t", catalog), base / "ice"),
        "DeltaSink": Table(delta, sm.DeltaSink(str(base / "delta")), base / "delta"),
    }


def main() -> None:
    """Print a line for each variant."""
    arguments = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 1_000_000), ("files", 20), ("rounds", 5)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--only", default="", help="a part of the sink's name")
    given = arguments.parse_args()
    each = given.rows // given.files
    with tempfile.TemporaryDirectory() as base:
        made = {n: table for n, table in tables(Path(base)).items() if given.only in n}
        for table in made.values():
            for file in range(given.files):
                table.commit(iter([rows(np.arange(file * each, (file + 1) * each))]), append=True)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        touched = {"none": 0, "one file": 1, "a tenth": given.files // 10, "all": given.files}
        found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        fresh = given.rows
        for round_ in range(given.rounds + 1):
            for place, (what, files) in enumerate(touched.items()):
                shift = round_ * len(touched) + place
                for name, table in made.items():
                    before_bytes = table.stored()
                    if files:
                        spread = np.arange(CHANGES // files) * (each // (CHANGES // files))
                        ids = np.concatenate(
                            [file * each + spread + shift for file in range(files)]
                        )
                    else:
                        ids, fresh = np.arange(fresh, fresh + CHANGES), fresh + CHANGES
                    took = table.commit(iter([rows(ids)]))
                    found.setdefault((what, name), []).append(
                        (*took, table.stored() - before_bytes)
                    )
        for (what, name), measured in found.items():
            clock, busy, size = map(statistics.median, zip(*measured[1:], strict=True))
            print(
                f"{what:10} {name:12} {clock * 1000:9.0f} ms {busy * 1000:9.0f} ms of CPU "
                f"{size / 1e6:9.1f} MB written"
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"memory: {before / 1024:.0f} MB before, {peak / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()
