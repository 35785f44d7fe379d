"""What sinks share, none of it public.

`outcomes.py` (what a system says of a transaction, and the answer for it), `committables.py`,
`servers.py` (drivers, URLs, systems that are away), `staged_files.py`, `columns.py`, `sifting.py`.
"""
