"""The only room that knows Spark: sessions, queries, tasks, and Hadoop files.

`query.py` runs a declared job as one Spark query; `pre_commit.py` is what its tasks do.
"""
