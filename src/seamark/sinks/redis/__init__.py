"""The Redis sink: strings or hashes by key, written before the decision or after it.

`sink.py` is what a user writes; `writer.py` and `committer.py` are its two sides, `scripts.py` what
the server runs for them, `rows.py` how Arrow becomes bytes. docs/sinks/redis.md says what holds.
"""

from seamark.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
