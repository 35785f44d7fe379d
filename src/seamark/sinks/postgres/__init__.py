"""PostgreSQL: rows go into a prepared transaction, or into a stage table moved at the commit.

`sink.py` is the configuration. `prepared.py` and `stage.py` are the two ways, each with its writer
(their common part is `writer.py`) and its end of a transaction. `committer.py` is the driver's side
of both, `preflight.py` its checks at the start. Below them: `connection.py` (deadlines, secrets,
errors), `table.py` (the target's columns), `types.py` (the column types for each Spark type),
`copy_format.py` (Arrow to binary COPY), `ledger.py` (every statement on the ledger),
`committable.py`.
"""

from seamark.sinks.postgres.sink import PostgresSink as PostgresSink
