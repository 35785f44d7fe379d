"""Prints each new value of the key `counter` until it is 30."""

import os
import time

import redis

client = redis.Redis.from_url(os.environ.get("REDIS", "redis://localhost:6379/0"))
seen = None
while seen != b"30":
    if (value := client.get("counter")) not in (None, seen):
        print(value.decode(), end=" ", flush=True)
        seen = value
    time.sleep(0.02)
