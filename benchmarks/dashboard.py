"""What it costs a job to be looked at, and how soon its page is there.

    python -m benchmarks.dashboard [--clients 20] [--rounds 6] [--seconds 20]

A job with a window, two sinks and a history of 1,000 checkpoints runs in a driver of its own, by
the dashboard's server. In turns nobody looks at it, and `--clients` clients do, for `--seconds`
each: every client asks, once a second, for what a browser asks for on the overview and the
checkpoint pages, with the ETags of what it has.

- `ratio` is the median duration of the epochs triggered while they look over that of the others, of
  all rounds together; the rounds alternate, so that what else the machine does falls on both.
- `usable`: meanwhile a real browser opens the history, each time with an empty cache: from the
  navigation until fifty rows stand there, by the browser's own clock.

The history is filled up with copies of checkpoints that this very job has made, through the store
that wrote them. It needs `pip install 'pyspark-seamark[dev]'` and Debian's chromium.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table
from tests.chaos.driver import Driver, wait_until
from tests.dashboard.chromium import browser
from tests.dashboard.server import Dashboard

from seamark.checkpoint.statistics_store import CHECKPOINTS_KEPT, StatisticsStore
from seamark.files.local import LocalDirectory

PROGRAM = """
import seamark as sm
from pyspark.sql import functions as F

job = sm.Job("looked-at", sm.CheckpointConfig(storage="store", interval="250ms"))
rows = job.source(sm.DatagenSource(rows_per_second=20_000, start_time="now"), uid="rows")
counts = (
    rows.withWatermark("timestamp", "5 seconds")
    .groupBy(F.window("timestamp", "2 seconds"), "user")
    .count()
    .select(F.col("window.start").alias("window_start"), "user", "count")
)
job.uid(counts, "counts")
job.sink(counts, sm.FileSink("out", format="json"), uid="files")
job.sink(counts, sm.FileSink("copy", format="parquet"), uid="copies")
if __name__ == "__main__":
    job.run()
"""
WARM_UP_S = 30
SETTLE_S = 2
"""After each change: epochs of this time count for neither."""
OPENINGS = 10


class Client(threading.Thread):
    """One browser tab: half of them show the overview, half the checkpoint history."""

    def __init__(self, url: str, jid: str, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address = urlsplit(url)
        self._over = stop
        self._number = number
        job = f"/jobs/{jid}"
        own = [f"{job}/epoch", f"{job}/series"] if number % 2 else [f"{job}/checkpoints?limit=50"]
        self._paths = [job, f"{job}/checkpoints?limit=1", *own]
        self._etags: dict[str, str] = {}
        self._since = 0
        self.asked = 0
        self.slowest_s = 0.0

    def run(self) -> None:
        line = http.client.HTTPConnection(self._address.hostname or "", self._address.port)
        self._over.wait(self._number / 20)  # browsers do not ask in step
        while not self._over.is_set():
            begun = time.monotonic()
            for path in self._paths:
                self._ask(line, path)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
            self._over.wait(max(0.0, 1 - (time.monotonic() - begun)))
        line.close()

    def _ask(self, line: http.client.HTTPConnection, path: str) -> None:
        grows = path.endswith("/series")
        headers = {"Accept-Encoding": "gzip"} if not grows else {}
        if path in self._etags and not grows:
            headers["If-None-Match"] = self._etags[path]
        line.request("GET", f"{path}?since={self._since}" if grows else path, headers=headers)
        answer = line.getresponse()
        body = answer.read()
        if answer.status not in (200, 204, 304):
            raise AssertionError(f"{path}: {answer.status} {body[:200]!r}")
        self._etags[path] = answer.headers["ETag"]
        if grows and (triggers := json.loads(body)["trigger_timestamp"]):
            self._since = triggers[-1] + 1
        self.asked += 1


def fill(directory: Path) -> None:
    """Give the job 1,000 checkpoints: copies of the last ones that it has made itself."""
    store = StatisticsStore(LocalDirectory(directory))
    own = store.records()
    for place in range(CHECKPOINTS_KEPT - len(own)):
        record = own[-1 - place % 5]
        before_ms = (CHECKPOINTS_KEPT - place) * 1000 + 60_000
        earlier = own[0].checkpoint.trigger_timestamp - before_ms
        checkpoint = replace(record.checkpoint, id=place, trigger_timestamp=earlier)
        store.write((0, place, 0), replace(record, checkpoint=checkpoint))


def open_history(url: str, jid: str) -> tuple[list[float], list[str]]:
    """Return the milliseconds until the history is there, of each opening, and what went wrong."""
    took, faults = [], []
    with browser() as chromium:
        for _ in range(OPENINGS):
            context = chromium.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(f"{url}/#/jobs/{jid}/checkpoints", wait_until="commit")
            there = "document.querySelectorAll('.history > tbody').length >= 50"
            found = page.wait_for_function(f"() => {there} && performance.now()")
            took.append(float(found.json_value()))
            context.close()
            time.sleep(0.5)
    return took, faults


def measure(root: Path, clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    (root / "app.py").write_text(PROGRAM)
    home = {"SEAMARK_HOME": f"{root}/home"}
    first = Driver(root / "app.py", {}, root / "first.log", environment=home)
    try:
        wait_until(
            "some checkpoints",
            lambda: len(list(root.glob("store/looked-at/statistics/*"))) > 20,
            300,
        )
        first.stop(timeout_s=120)
    finally:
        first.kill_tree()
    fill(root / "store/looked-at")
    driver = Driver(root / "app.py", {}, root / "driver.log", environment=home)
    try:
        with Dashboard(root / "store", root / "home") as dashboard:
            return _look(dashboard, clients, rounds, seconds)
    finally:
        driver.kill_tree()


def _look(dashboard: Dashboard, clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    def running() -> str:
        jobs = dashboard.ask("/jobs/overview").json["jobs"]
        return str(jobs[0]["jid"]) if jobs and jobs[0]["state"] == "RUNNING" else ""

    jid = wait_until("the job runs", running, 300)
    time.sleep(WARM_UP_S)
    epochs: dict[bool, list[list[float]]] = {False: [], True: []}
    slowest, asked = 0.0, 0
    for number in range(2 * rounds):
        looked_at = number % 4 in (1, 2)  # off on on off: a trend falls on both
        stop = threading.Event()
        tabs = [Client(dashboard.url, jid, i, stop) for i in range(clients if looked_at else 0)]
        for tab in tabs:
            tab.start()
        time.sleep(SETTLE_S)
        begun = time.time()
        time.sleep(seconds)
        ended = time.time()
        stop.set()
        for tab in tabs:
            tab.join()
            slowest, asked = max(slowest, tab.slowest_s), asked + tab.asked
        time.sleep(SETTLE_S)  # and now, before newer ones have pushed them out of the history
        series = dashboard.ask(f"/jobs/{jid}/series").json
        epochs[looked_at].append(_epochs(series, begun * 1000, ended * 1000))
    stop = threading.Event()
    tabs = [Client(dashboard.url, jid, i, stop) for i in range(clients)]
    for tab in tabs:
        tab.start()
    took, faults = open_history(dashboard.url, jid)
    stop.set()
    for tab in tabs:
        tab.join()
    series = dashboard.ask(f"/jobs/{jid}/series").json
    return {"epochs": epochs, "took": took, "faults": faults,
            "slowest_s": slowest, "asked": asked, "checkpoints": len(series["id"])}  # fmt: skip


def _epochs(series: dict[str, list[Any]], begun: float, ended: float) -> list[float]:
    """Return the durations of the epochs that were triggered meanwhile."""
    points = zip(series["trigger_timestamp"], series["end_to_end_duration"], strict=True)
    return [ms for at, ms in points if begun <= at < ended and ms]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6, help="of each kind")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sm-bench-dashboard-") as root:
        found = measure(Path(root), options.clients, options.rounds, options.seconds)
    console = Console()
    table = Table("clients", "epochs", "median ms", "p95 ms", "medians of the rounds", box=None)
    medians = {}
    for looked_at in (False, True):
        spans = found["epochs"][looked_at]
        every = sorted(ms for span in spans for ms in span)
        medians[looked_at] = statistics.median(every)
        table.add_row(
            str(options.clients if looked_at else 0),
            str(len(every)),
            f"{medians[looked_at]:.0f}",
            f"{every[int(len(every) * 0.95)]:.0f}",
            ", ".join(f"{statistics.median(span):.0f}" for span in spans),
        )
    console.print(table)
    console.print(f"ratio {medians[True] / medians[False]:.3f} (aim: at most 1.03)")
    took = sorted(found["took"])
    console.print(
        f"usable after {statistics.median(took):.0f} ms, at worst {took[-1]:.0f} ms, "
        f"of {len(took)} openings with {found['checkpoints']} checkpoints (aim: under 1,000)"
    )
    console.print(
        f"{found['asked']} requests; the slowest second of a client took "
        f"{found['slowest_s'] * 1000:.0f} ms; faults: {found['faults'] or 'none'}"
    )


if __name__ == "__main__":
    main()
