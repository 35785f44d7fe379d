"""The user's declarations: the checkpoint settings and a job's sources, operators and sinks.

Everything is validated when it is built. `seamark.job.Job` is the front with Spark.
"""
