"""What a declared job guarantees, from source to sink, without running it.

`end_to_end.py` holds the table, the analysis and its report.
"""
