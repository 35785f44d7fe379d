"""The checkpoint protocol, pure: no I/O, no clock, no thread, no Spark.

`states.py` is the state machine as a table, `points.py` names the points between its steps,
`procedures.py` holds the steps, run by the coordinator and by the model checker, and `ports.py`
their interfaces to storage and sinks.
"""
