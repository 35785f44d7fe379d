"""Runs `app.py` in each mode, kills it in its second epoch, runs it again, and adds the amounts up.

Each is killed with -9 at the same point: `debit` has the epoch's rows, `credit` has not.
"""

import os
import signal
import sqlite3
import subprocess
import sys

BETWEEN_THE_SINKS = "ledger-committed:3"  # two an epoch: the third is debit's in the second epoch

print(f"{'':14}{'debit':>8}{'credit':>8}   of 600", flush=True)
for mode in ("exactly-once", "at-least-once", "at-most-once"):
    for failpoint in (BETWEEN_THE_SINKS, ""):
        environment = {**os.environ, "SEAMARK_FAILPOINT": failpoint}
        ended = subprocess.run([sys.executable, "app.py", mode], env=environment)
        assert ended.returncode == (-signal.SIGKILL if failpoint else 0)
    with sqlite3.connect(f"{mode}.db") as database:
        sums = [
            database.execute(f"SELECT sum(amount) FROM {table}").fetchone()[0]
            for table in ("debit", "credit")
        ]
    print(f"{mode:14}{sums[0]:>8}{sums[1]:>8}", flush=True)
