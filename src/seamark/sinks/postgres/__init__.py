"""PostgreSQL: rows in a prepared transaction, or in a stage table that is moved at the commit.

`sink.py` is the configuration; `prepared.py` and `stage.py` are the two ways, each with its writer
(what they share is in `writer.py`) and its end of a transaction; `committer.py` is the driver's
side of both, `preflight.py` its checks at start. Below them: `connection.py` (deadlines, secrets,
errors), `table.py` (the target's columns), `types.py` (which Spark type goes into which column
type), `copy_format.py` (Arrow to binary COPY), `ledger.py` (every statement on the ledger),
`committable.py`.
"""

from seamark.sinks.postgres.sink import PostgresSink as PostgresSink
