"""The common code of the sinks, none of it public.

`outcomes.py` (a transaction's fate in its system, and the committer's answer), `committables.py`,
`servers.py` (drivers, URLs, unreachable systems), `staged_files.py`, `columns.py`, `sifting.py`,
`partitions.py`.
"""
