"""MySQL and MariaDB: XA transactions, or stage tables and one transaction, with a ledger.

`sink.py` is the configuration. Tasks: `writer.py` turns Arrow columns into SQL text and
loads it (`loading.py`). Driver: `committer.py`, `preflight.py`. Both: `stage.py`, `ledger.py`
(the proof of every outcome), `committable.py`, `table.py` (columns and their types),
`connection.py` (the only user of the driver module).
"""

from seamark.sinks.mysql.sink import MySQLSink as MySQLSink
