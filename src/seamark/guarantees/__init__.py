"""The guarantees of a declared job, from source to sink, without running it.

`end_to_end.py` holds the table, the analysis and its report.
"""
