"""SQLite: rows staged in Arrow files, moved into the table in one transaction with a ledger row.

`sink.py` is the configuration. `writer.py` stages, and finds refused rows before the decision;
`committer.py` moves. `database.py` holds the connection, the ledger and every SQL statement.
"""

from seamark.sinks.sqlite.sink import SQLiteSink as SQLiteSink
