"""The common code of the sinks, none of it public.

`committables.py` and `committers.py` (what sinks and committers are made of), `outcomes.py` (a
transaction's fate in its system, and the committer's answer), `servers.py` (drivers, URLs,
unreachable systems), `table_sink.py` (what sinks of SQL servers are given), `table_*.py` (data
files in a table's directory), `changes.py` (keys and op), `staged_files.py`, `read_back.py`,
`columns.py`, `sifting.py`, `parquet.py`, `partitions.py`.
"""
