"""Audits: reads a job's targets back, and compares them with the job's ledger.

`cells.py` sorts the ledger's sums into cells that can be told apart at the target, `one_sink.py`
reads a sink back and finds the cells that differ, `faults.py` names the fault of such a cell, and
`one_job.py` audits all sinks of a job. docs/operations/audit.md is for users.
"""
