"""`write_stream`: Spark's own way to write a stream, as a job of Seamark's.

`writer.py` follows `DataStreamWriter`, `formats.py` makes the sinks, `job.py` the job, and
`query.py` is what ``start()`` returns.
"""
