"""Sink for Delta Lake tables: appends with delta-rs (PyPI `deltalake`), without a JVM.

A task writes Parquet files into the table's directory (`writer.py`, `statistics.py`). No reader
sees them until the table's log names them. One log entry per epoch names them all (`committer.py`).
The log itself records the outcome of each transaction.

`sink.py` is the configuration. `types.py` maps Spark's types. `preflight.py` checks the table.
`store.py` reaches its directory on a local disk, HDFS or an object store. What it shares with other
tables is in `sinks/internal/table_*.py`. docs/adr/0008-delta-lake.md explains the choices.
"""

from seamark.sinks.delta.sink import DeltaSink as DeltaSink
