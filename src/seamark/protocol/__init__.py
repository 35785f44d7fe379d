"""The checkpoint protocol, pure: no I/O, no clock, no thread, no Spark.

`states.py` is the state machine as a table, `points.py` names the points between its steps,
`procedures.py` are the steps themselves, which the coordinator and the model checker both run,
`ports.py` is what they run against.
"""
