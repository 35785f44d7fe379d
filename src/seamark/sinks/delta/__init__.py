"""Delta Lake tables, appended to by delta-rs (PyPI `deltalake`): no JVM takes part.

A task writes Parquet files into the table's directory, which no reader sees until the table's log
names them (`writer.py`, `data_files.py`); one log entry an epoch names them all (`committer.py`).
What became of each transaction stands in the log itself (`ledger.py`). `sink.py` is the
configuration, `types.py` maps Spark's types, `preflight.py` checks the table, `store.py`
reaches its directory on a local disk or on S3, `pending_files.py` tells what an attempt has left.
docs/adr/0008-delta-lake.md has the choices.
"""

from seamark.sinks.delta.sink import DeltaSink as DeltaSink
