"""A program to copy a socket's lines to a table, to be killed and started again."""

from __future__ import annotations

import json
import logging
import sys

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job("lines", sm.CheckpointConfig(storage=options["storage"], interval="500ms"))
lines = job.source(sm.SocketSource("127.0.0.1", options["port"]), uid="in")
job.sink(lines, sm.SQLiteSink(options["database"], "t"), uid="out")

if __name__ == "__main__":
    job.run()
