"""``format("seamark")``: the sinks as a Python data source of Spark, for programs without a JVM.

`source.py` is the class that Spark finds, `options.py` makes sinks of texts, and `location.py`
drives the steps of `protocol/batches.py` on the stored log
(`checkpoint/batch_log.py`).
"""
