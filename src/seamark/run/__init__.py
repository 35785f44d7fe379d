"""A declared job on Spark and the run of it: its plan and facts, its epochs, tasks and failures.

`query.py` runs a declared job as one Spark query; `pre_commit.py` is the work of its tasks.
"""
