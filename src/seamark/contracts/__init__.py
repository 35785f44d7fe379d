"""The promises of sources, sinks and checkpoint stores; start with `sink.py`.

A third-party connector needs only this room; nothing here knows Spark.
"""
