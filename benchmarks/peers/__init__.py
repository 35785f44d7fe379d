"""Seamark beside other stream processors, on one machine: `python -m benchmarks.peers`.

`__main__.py` has the command, `work.py` the input and what must come out, `engine.py` the process
of an engine, `spark.py`, `flink.py` and `quix.py` the engines, `nexmark.py` the events and queries,
`nexmark_flink.py` these in Flink SQL, `measure.py` the measuring, `report.py` the tables.
"""
