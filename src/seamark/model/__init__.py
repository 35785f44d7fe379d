"""Frozen values for every room: errors, guarantees, durations, schemas, failpoints.

Nothing here imports another room; start with `errors.py` and `guarantee.py`.
"""
