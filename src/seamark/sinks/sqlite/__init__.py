"""SQLite: rows staged in Arrow files, moved into the table in one transaction with a ledger row.

`sink.py` is the configuration. `writer.py` stages, `committer.py` moves. `selective_writer.py`
finds refused rows before the decision. `database.py` holds the connection, the ledger and every SQL
statement.
"""

from seamark.sinks.sqlite.sink import SQLiteSink as SQLiteSink
