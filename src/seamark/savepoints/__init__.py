"""Savepoints: a job's state as rows or files, apart from the job.

`savepoint.py` is the class that a user sees, `record.py` what ``savepoint.json`` says, `claims.py`
whose a savepoint is and how it is deleted. Each room has its verb: `take/`, `restore/` (also of
retained checkpoints), `edit/`; `state/` knows Spark's state stores. docs/FORMAT.md has every byte.
"""
