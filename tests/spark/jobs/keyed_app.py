"""A job with a slow keyed function, to be killed; its argument: `home`, `slow_s`, `config`, `job`
(``numbering`` or ``sessions``), `drain`: whether to drain it when it has given a row, and `gate`: a
path to wait for when Spark is up."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from tests.chaos.driver import wait_until
from tests.spark.jobs.keyed_programs import numbering_job, results, sessions_job

asked = json.loads(sys.argv[1])
home = Path(asked["home"])
make = sessions_job if asked.get("job") == "sessions" else numbering_job
job = make(home, asked["slow_s"], **asked["config"])


def drain() -> None:
    wait_until("a row", lambda: bool(results(home / "out")), 120)
    job.stop_with_savepoint(str(home / "savepoints"), drain=True)


if asked.get("drain"):
    threading.Thread(target=drain, daemon=True).start()
while not Path(asked.get("gate", home)).exists():
    time.sleep(0.02)
job.run(parallelism=2)
