"""What a source, a sink and a checkpoint store promise: start with `sink.py`.

A third-party connector needs only this room; nothing here knows Spark.
"""
