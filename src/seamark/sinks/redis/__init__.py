"""Redis sink: strings or hashes by key, written before or after the decision.

`sink.py` is the configuration. `writer.py` and `committer.py` are the task and driver sides.
`scripts.py` has the server's scripts, and `rows.py` turns Arrow into bytes. docs/sinks/redis.md has
the guarantees.
"""

from seamark.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
