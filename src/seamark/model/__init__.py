"""Frozen values that every room may use: errors, guarantees, durations, schemas, failpoints.

Nothing here imports anything of ours; start with `errors.py` and `guarantee.py`.
"""
