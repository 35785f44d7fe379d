"""Savepoints: a job's state as rows or files, apart from the job.

`savepoint.py` holds the user's class, `record.py` the content of ``savepoint.json``, `claims.py` a
savepoint's ownership and deletion. Each room has its verb: `take/`, `restore/` (of savepoints and
retained checkpoints), `edit/`. `state/` knows Spark's state stores. docs/FORMAT.md specifies every
byte.
"""
