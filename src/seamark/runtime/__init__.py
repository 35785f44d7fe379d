"""The only room with access to Spark: sessions, queries, tasks, and Hadoop files.

`query.py` runs a declared job as one Spark query; `pre_commit.py` is the work of its tasks.
"""
