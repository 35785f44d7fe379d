"""What SqlSink stages a second, and how long its commit takes, in one database.

    python -m benchmarks.sql_sink URL [--rows 100000] [--rounds 3]

One writer stages rows of 100 bytes in batches of 10,000, as a task does; then the commit moves
them, and another commit ten rows. The median of the rounds is printed.
"""

import argparse
import statistics
import time

import pyarrow as pa

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.schema import Column
from seamark.sinks.sql import SqlSink

SCHEMA = (Column("id", "bigint"), Column("amount", "double"), Column("note", "string"))
BATCH_ROWS = 10_000


def rows(start: int, count: int) -> pa.RecordBatch:
    """Return rows of 100 bytes."""
    numbers = range(start, start + count)
    notes = [f"note {n:079d}" for n in numbers]
    return pa.record_batch(
        {"id": pa.array(numbers, pa.int64()), "amount": [n / 7 for n in numbers], "note": notes}
    )


def measured(sink: SqlSink, count: int, epoch: int) -> tuple[float, float]:
    """Return the seconds of a writer's work and of its commit."""
    batches = [rows(at, min(BATCH_ROWS, count - at)) for at in range(0, count, BATCH_ROWS)]
    writer = sink.create_writer(WriterContext("bench", "sql", 1, epoch, 0, 0, epoch - 1))
    committer = sink.create_committer(SinkContext("bench", "bench", "sql", 1, 5.0, SCHEMA))
    committer.preflight()
    begun = time.perf_counter()
    for batch in batches:
        writer.write(batch)
    committables = writer.prepare_commit()
    staged = time.perf_counter()
    committer.commit(committables)
    done = time.perf_counter()
    committer.close()
    return staged - begun, done - staged


def main() -> None:
    """Print one row of the table in docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--table", default="seamark_benchmark")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sink = SqlSink(given.url, given.table)
    first = time.time_ns() // 1000  # no epoch twice in one ledger
    many = [measured(sink, given.rows, first + n) for n in range(given.rounds)]
    few = [measured(sink, 10, first + given.rounds + n) for n in range(given.rounds)]
    rate = given.rows / statistics.median(staged for staged, _ in many)
    commit_ms, few_ms = (1000 * statistics.median(c for _, c in runs) for runs in (many, few))
    print(f"| {sink.database.dialect} | {rate:,.0f} | {commit_ms:,.0f} | {few_ms:,.0f} |")


if __name__ == "__main__":
    main()
