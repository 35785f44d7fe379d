"""The pictures of docs/operations/dashboard.md, made anew: `python -m tests.dashboard.pictures`.

A job runs for two minutes in a driver of its own; a real browser looks at it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.chaos.driver import REPOSITORY, Driver, wait_until
from tests.dashboard.chromium import Visit, browser
from tests.dashboard.server import Dashboard

PROGRAM = """
import seamark as sm
from pyspark.sql import functions as F

job = sm.Job("orders", sm.CheckpointConfig(storage="store", interval="1s"))
rows = job.source(sm.DatagenSource(rows_per_second=2000), uid="orders")
job.sink(rows.select("row"), sm.FileSink("copy", format="parquet"), uid="archive")
timed = rows.withWatermark("timestamp", "2 seconds")
shop = (F.col("row") % 10).alias("shop")
counts = timed.groupBy(F.window("timestamp", "5 seconds"), shop).count()
per_shop = job.uid(counts, "per-shop").select("shop", "count")
job.sink(per_shop, sm.SQLiteSink("shops.db", "per_shop"), uid="database")
if __name__ == "__main__":
    job.run()
"""
OUT = REPOSITORY / "docs/operations"


def main() -> None:
    """Run the job, and take them."""
    root = Path(tempfile.mkdtemp(prefix="seamark-pictures-"))
    (root / "app.py").write_text(PROGRAM)
    home = {"SEAMARK_HOME": f"{root}/home", "SEAMARK_PARALLELISM": "2"}
    driver = Driver(root / "app.py", {}, root / "driver.log", environment=home)
    try:
        with Dashboard(root / "store", root / "home") as dashboard, browser() as chromium:

            def running() -> str:
                assert driver.returncode is None, driver.tail()
                jobs = dashboard.ask("/jobs/overview").json["jobs"]
                return str(jobs[0]["jid"]) if jobs and jobs[0]["state"] == "RUNNING" else ""

            jid = wait_until("it runs", running, 240)
            time.sleep(60)
            tab = Visit(chromium, dashboard.address, width=1280)
            take(tab, root)
            time.sleep(30)
            take(tab, root)
            look = {
                "overview": (f"jobs/{jid}/overview", ".recent rect"),
                "timeline": (f"jobs/{jid}/timeline", ".timeline .run"),
                "savepoints": (f"jobs/{jid}/savepoints", ".savepoints tbody"),
            }
            for name, (path, there) in look.items():
                tab.open(path)
                tab.wait_for(there)
                if name == "savepoints":
                    tab.page.get_by_role("button", name="Compare two savepoints").click()
                picture(tab, name)
            tab.open(f"jobs/{jid}/checkpoints")
            tab.page.locator(".history tbody .toggle").nth(3).click()
            tab.page.get_by_role("button", name="Subtasks of database").click()
            picture(tab, "checkpoints")
            dark = Visit(chromium, dashboard.address, width=1280, colours="dark")
            dark.open(f"jobs/{jid}/plots")
            dark.wait_for(".uplot canvas")
            picture(dark, "plots")
    finally:
        driver.kill_tree()


def take(tab: Visit, root: Path) -> None:
    """Take a savepoint by the button."""
    jobs = tab.page.get_by_role("link", name="orders", exact=True)
    tab.open("")
    jobs.click()
    tab.page.get_by_role("link", name="Savepoints", exact=True).click()
    tab.page.get_by_role("button", name="Take a savepoint").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Directory").fill(f"{root}/savepoints")
    dialog.get_by_role("button", name="Take it").click()
    dialog.get_by_text("The savepoint is whole").wait_for()
    dialog.get_by_role("button", name="Close").click()


def picture(tab: Visit, name: str) -> None:
    """Take one of the whole page, at most 1,100 pixels high."""
    tab.page.wait_for_timeout(1500)
    height = min(int(tab.page.evaluate("document.documentElement.scrollHeight")), 1100)
    clip = {"x": 0, "y": 0, "width": 1280, "height": height}
    path = OUT / f"dashboard-{name}.png"
    tab.page.screenshot(path=path, clip=clip, full_page=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
