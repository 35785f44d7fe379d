"""Sink for Iceberg tables: appends with pyiceberg, without a JVM.

A task writes Parquet files into the table's directory (`writer.py`, `partitions.py`). No reader
sees them until a snapshot names them. One snapshot per epoch names them all (`committer.py`,
`snapshots.py`). Its summary and a property of the table record each transaction's outcome
(`ledger.py`).

`sink.py` is the configuration. `catalog.py` calls the catalog, `table_io.py` reads and writes the
table's metadata files. `types.py` maps Spark's types, `preflight.py` checks the table. What it
shares with other tables is in `sinks/internal/table_*.py`. docs/adr/0023-iceberg.md explains the
choices.
"""

from seamark.sinks.iceberg.sink import IcebergSink as IcebergSink
