"""Any database that SQLAlchemy knows and that has transactions: rows go into a stage table, and one
transaction moves them into the target and writes the ledger's row.

`sink.py` is the configuration. `writer.py` stages, `committer.py` moves and proves. `database.py`
holds connections and deadlines, `tables.py` every table and statement, `types.py` what a column
holds.
"""

from seamark.model.packages import load_driver

load_driver("sqlalchemy", "SqlSink needs SQLAlchemy", "sql")  # each module below imports it

from seamark.sinks.sql.sink import SqlSink as SqlSink  # noqa: E402
