"""What a declared job guarantees, from source to sink, without running it.

`end_to_end.py` holds the table and the analysis, `text.py` shows its report.
"""
