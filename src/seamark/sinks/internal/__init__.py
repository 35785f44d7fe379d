"""The common code of the sinks, none of it public.

`outcomes.py` (a transaction's fate in its system, and the committer's answer), `committables.py`,
`servers.py` (drivers, URLs, unreachable systems), `sql_sink.py` (what sinks of SQL servers are
given), `changes.py` (keys and op), `staged_files.py`, `columns.py`, `sifting.py`, `parquet.py`,
`partitions.py`.
"""
