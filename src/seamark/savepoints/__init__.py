"""Savepoints offline: the canonical form of a job's state, independent of backend and partitions.

Follow the data: `canonical.py` exports one epoch of a Spark checkpoint location, `record.py` is
what ``savepoint.json`` says of it, `restoring.py` makes a Spark checkpoint location out of it
again; `operator_state.py` and `state_rows.py` know Spark's state stores. docs/FORMAT.md has every
byte.
"""
