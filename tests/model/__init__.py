"""The protocol, model-checked: start with `test_exhaustive.py`, then `world.py`.

`world.py` holds the world outside the driver (records, Spark's two logs, the sinks) and the
invariants; `driver.py` is one driver's life on the real procedures of `seamark.protocol`;
`replay.py` stops those procedures before every single call; `scheduler.py` interleaves drivers and
injects faults; `planted_bugs.py` holds wrong protocols for the checker to reject.
"""
