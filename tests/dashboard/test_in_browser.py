"""How: two jobs run in drivers of their own, and a real browser looks at them through `seamark
dashboard`, a process too. One job is killed by SIGKILL, the other stopped by the button; the
dashboard's server is killed and started again. In every tab opened by a test, an error in the
console, an exception or a request to another host fails it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from seamark.dashboard import shared_pages
from seamark.dashboard.jobs import Jobs
from tests.chaos.driver import Driver, wait_until
from tests.dashboard.chromium import PATIENCE_MS, Visit
from tests.dashboard.server import Dashboard
from tests.dashboard.stored import write_job

expect.set_options(timeout=PATIENCE_MS)

PROGRAM = """
import json
import sys

import seamark as sm
from pyspark.sql import functions as F

name = json.loads(sys.argv[1])["name"]
class Changes(sm.FileSink):
    output_modes = ("append", "update")

job = sm.Job(name, sm.CheckpointConfig(storage="store", interval="300ms"), "update")
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
job.sink(rows.select("row"), sm.FileSink(f"out-{name}", format="json"), uid="files")
if name == "orders":  # a job with state to be saved
    timed = rows.withWatermark("timestamp", "5 seconds")
    counts = timed.groupBy((F.col("row") % 10).alias("digit")).count()
    job.sink(job.uid(counts, "digits"), Changes("counts", format="json"), uid="counts")
else:
    job.sink(rows.select("row"), sm.FileSink(f"copy-{name}", format="json"), uid="copies")
if __name__ == "__main__":
    job.run()
"""
STORED_ID = "ab" * 16


class Site:
    """The storage, its two drivers, and their dashboard."""

    def __init__(self, root: Path) -> None:
        (root / "app.py").write_text(PROGRAM)
        home = {"SEAMARK_HOME": f"{root}/home", "SEAMARK_PARALLELISM": "2"}
        self.store = root / "store"
        write_job(self.store, "long", 1000, failed=frozenset({300, 995}))
        self.drivers = {
            name: Driver(root / "app.py", {"name": name}, root / f"{name}.log", environment=home)
            for name in ("clicks", "orders")
        }
        self.dashboard = Dashboard(self.store, root / "home")
        self.dashboard.start()

    def jid(self, name: str) -> str:
        """Return a job's id, once its driver answers."""

        def found() -> str:
            assert self.drivers[name].returncode is None, self.drivers[name].tail()
            jobs = self.dashboard.ask("/jobs/overview").json["jobs"]
            running = [j["jid"] for j in jobs if j["name"] == name and j["state"] == "RUNNING"]
            return running[0] if running else ""

        return str(wait_until(f"job {name} is running", found, 240))

    def close(self) -> None:
        self.dashboard.kill()
        for driver in self.drivers.values():
            driver.kill_tree()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


@pytest.fixture
def visit(site: Site, chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens tabs; at the end of the test nothing may have gone wrong in them."""
    opened: list[Visit] = []

    def open_tab(address: str | None = None, **options: object) -> Visit:
        opened.append(Visit(chromium, address or site.dashboard.address, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_tab
    faults = [fault for tab in opened for fault in tab.faults]
    for tab in opened:
        tab.close()
    assert faults == []


def test_checkpoints_appear_and_open_down_to_subtasks(
    site: Site, visit: Callable[..., Visit]
) -> None:
    tab = visit()
    page = tab.page
    assert site.dashboard.token not in page.url  # moved out of the address and its history
    site.jid("clicks")
    page.get_by_role("link", name="clicks").click()
    expect(page.locator("h1")).to_contain_text("running")
    for uid in ("rows", "files", "copies"):
        expect(page.locator(".node h3", has_text=uid)).to_be_visible()
    expect(page.locator("path.edge")).to_have_count(2)
    page.get_by_role("link", name="Checkpoints", exact=True).click()
    newest = page.locator(".history tbody th").first
    seen = newest.inner_text()
    expect(newest).not_to_have_text(seen)  # another one, without a reload
    completed = page.locator(".history tbody", has_text="completed")
    expect(completed.nth(2)).to_be_visible()
    row = completed.nth(1)  # not the first of all: it may have no rows, and so no subtasks
    number = row.locator("th").inner_text()
    page.get_by_role("button", name=f"Details of checkpoint {number}", exact=True).click()
    page.get_by_role("button", name="Subtasks of files").click()
    expect(page.get_by_label("Subtasks of files").get_by_role("row").last).to_be_visible()
    expect(page.get_by_label("Subtasks of files").get_by_role("row")).not_to_have_count(1)


OVERVIEW = """() => {
  const figures = [...document.querySelectorAll(".figure")];
  const figure = (name) => figures.find((one) => one.querySelector("dt").textContent === name)
    ?.querySelector(".value").textContent;
  const card = document.querySelector("section[aria-labelledby=epoch-title]");
  return [
    figure("Last checkpoint"),
    /Last completed: ([^.]+)/.exec(card?.textContent)?.[1],
    card?.querySelector("h2 .note")?.textContent ?? "",
  ];
}"""


def test_the_overview_says_one_thing_of_one_moment(site: Site, visit: Callable[..., Visit]) -> None:
    tab = visit()
    tab.open(f"jobs/{site.jid('clicks')}")
    tab.wait_for(".figure")
    expect(tab.page.locator(".figure", has_text="Completed")).to_contain_text("with savepoints")
    seen = set()
    begun = time.monotonic()
    while len(seen) < 30:
        assert time.monotonic() < begun + 240, seen
        last, completed, under_way = tab.page.evaluate(OVERVIEW)
        assert last == completed
        if under_way and completed != "none yet":
            assert int(under_way) > int(completed)
        seen.add((last, under_way))
        time.sleep(0.05)


@pytest.mark.parametrize(("width", "colours"), [(390, "dark"), (1440, "light")])
def test_every_page_fits_the_window(
    site: Site, visit: Callable[..., Visit], width: int, colours: str
) -> None:
    jid = site.jid("clicks")
    tab = visit(width=width, colours=colours)
    pages = {
        "": ".jobs tbody tr",
        f"jobs/{jid}/overview": ".recent rect",
        f"jobs/{jid}/checkpoints/history": ".history tbody",
        f"jobs/{jid}/checkpoints/summary": "text=p99.9",
        f"jobs/{jid}/checkpoints/configuration": "text=Least pause",
        f"jobs/{jid}/savepoints": "text=No savepoint yet",
        f"jobs/{jid}/plots": ".uplot canvas",
        f"jobs/{jid}/exceptions": "text=Nothing has failed",
        f"jobs/{jid}/executions": "text=Began anew",
        f"jobs/{jid}/configuration": "text=checkpoint.interval",
        f"jobs/{STORED_ID}/exceptions": "text=CheckpointExpiredError",
        f"jobs/{STORED_ID}/overview": "text=the disk is full",
    }
    for path, there in pages.items():
        tab.open(path)
        tab.wait_for(there)
        assert tab.overflow() <= 0, path
    tab.open(f"jobs/{STORED_ID}/checkpoints")
    tab.page.get_by_role("button", name="Details of checkpoint 996", exact=True).click()
    tab.page.get_by_role("button", name="Subtasks of files").click()
    tab.wait_for(".subtasks")
    assert tab.overflow() <= 0
    ground = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", ground))) < 80) == (colours == "dark")


def test_a_thousand_checkpoints_are_paged(site: Site, visit: Callable[..., Visit]) -> None:
    tab = visit()
    tab.open(f"jobs/{STORED_ID}/checkpoints")
    first = tab.page.locator(".history tbody th").first
    expect(first).to_have_text("997")
    expect(tab.page.locator(".history > tbody")).to_have_count(50)
    tab.page.get_by_role("button", name="Older").first.click()
    expect(first).to_have_text("948")
    tab.page.get_by_role("button", name="Newest").first.click()
    expect(first).to_have_text("997")
    tab.page.get_by_role("link", name="Failed", exact=True).click()
    expect(tab.page.locator(".history > tbody")).to_have_count(2)
    expect(tab.page.locator(".history .reason").first).to_contain_text("was not decided")


def test_it_is_used_without_a_mouse(site: Site, visit: Callable[..., Visit]) -> None:
    jid = site.jid("clicks")
    tab = visit()
    tab.open(f"jobs/{jid}/checkpoints")
    page, keys = tab.page, tab.page.keyboard
    tab.wait_for(".history tbody")
    page.reload()  # as a user arrives: nothing has the focus yet
    tab.wait_for(".history tbody")
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keys.press("Enter")
    expect(page.locator("#main")).to_be_focused()

    def tab_to(name: str) -> None:
        for _ in range(80):
            keys.press("Tab")
            if name in page.evaluate(
                "document.activeElement.ariaLabel || document.activeElement.innerText"
            ):
                return
        raise AssertionError(f"{name!r} is not reached by the Tab key")

    tab_to("Stop")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Stop clicks?")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    tab_to("Details of checkpoint")
    keys.press("Enter")
    expect(page.locator(".history .details")).to_be_visible()
    # Open parts stay open, in their place, and focused, while the job goes on.
    newest = page.locator(".history tbody th").first
    held = newest.inner_text()
    expect(page.get_by_text(re.compile("held while one is open, .* newer")).first).to_be_visible()
    expect(newest).to_have_text(held)
    expect(page.locator(".history .details")).to_be_visible()
    assert "Details" in page.evaluate("document.activeElement.ariaLabel")
    keys.press("Enter")
    expect(page.locator(".history .details")).to_have_count(0)
    expect(newest).not_to_have_text(held)


def test_a_checkpoint_that_is_shown_stays_from_its_trigger_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed and restored row loses the user's focus in it."""
    monkeypatch.setattr(shared_pages, "FRESH_S", 0.0)
    monkeypatch.setattr(shared_pages, "REST", 0)
    jobs, jid = Jobs(f"file://{site.store}"), site.jid("clicks")
    known: dict[tuple[int, int], str] = {}
    completed = 0
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        made = jobs.page(jid, "", lambda job: jobs.checkpoints(job, 1000, None, None))
        page = json.loads(made.body)
        shown = {(c["id"], c["trigger_timestamp"]): c["status"] for c in page["history"]}
        assert known.keys() - shown.keys() == set()
        assert len(shown) == len(page["history"]) == page["counts"]["total"]
        completed += sum(
            status == "COMPLETED" and known.get(one) == "IN_PROGRESS"
            for one, status in shown.items()
        )
        known.update(shown)
        time.sleep(0.04)  # drivers answer 50 requests a second
    assert completed > 0


def test_an_empty_storage_names_the_next_command(
    visit: Callable[..., Visit], tmp_path: Path
) -> None:
    with Dashboard(tmp_path / "none", tmp_path / "home") as empty:
        tab = visit(empty.address)
        expect(tab.page.locator("main")).to_contain_text("No jobs here yet")
        expect(tab.page.locator("main pre")).to_contain_text(f"file://{tmp_path}/none app.py")


def test_without_the_token_nothing_is_changed(site: Site, visit: Callable[..., Visit]) -> None:
    jid = site.jid("orders")
    tab = visit(site.dashboard.url)
    tab.open(f"jobs/{jid}/overview")
    tab.page.get_by_role("button", name="Cancel").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("needs the dashboard's token")
    dialog.get_by_label("Address or token").fill("wrong")
    dialog.get_by_role("button", name="Go on").click()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(dialog).to_contain_text("This needs the token of the dashboard")
    assert [fault for fault in tab.faults if "401" not in fault] == []
    tab.faults.clear()  # the console tells of the refusal
    assert site.jid("orders") == jid


def test_a_checkpoint_is_taken_by_the_button(site: Site, visit: Callable[..., Visit]) -> None:
    jid = site.jid("orders")
    tab = visit()
    tab.open(f"jobs/{jid}/overview")
    page = tab.page
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Checkpoint now").click()
    dialog.get_by_role("button", name="No, leave it").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Checkpoint now").click()
    dialog.get_by_role("button", name="Take it").click()
    expect(dialog).to_contain_text("is complete")
    number = re.findall(r"Checkpoint (\d+) is complete", dialog.inner_text())[0]
    dialog.get_by_role("button", name="Close").click()
    done = site.dashboard.ask(f"/jobs/{jid}/checkpoints/details/{number}").json
    assert done["status"] == "COMPLETED"


def test_a_savepoint_is_taken_planned_for_and_disposed_of_by_the_buttons(
    site: Site, visit: Callable[..., Visit], tmp_path: Path
) -> None:
    jid = site.jid("orders")
    tab = visit(width=390)
    tab.open(f"jobs/{jid}/savepoints")
    page = tab.page
    dialog = page.get_by_role("dialog")
    path = take_savepoint(tab, tmp_path)
    assert (path / "savepoint.json").exists()
    row = page.locator(".savepoints > tbody")
    expect(row).to_contain_text("completed")
    expect(row).to_contain_text(str(path))
    row.get_by_role("button", name="What the savepoint of epoch").click()
    operators = row.get_by_label("Operators of the savepoint").get_by_role("row")
    expect(operators.last).to_contain_text("digits")
    expect(operators.last).to_contain_text("stateStoreSave")
    assert tab.overflow() <= 0

    row.get_by_role("button", name="Restore plan").click()
    dialog.get_by_label("State partitions").fill("3")
    dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog).to_contain_text("It can be restored.")
    operator = dialog.get_by_role("row").filter(has_text="digits")
    expect(operator).to_contain_text("mapped")
    expect(operator).to_contain_text("repartitioned")
    expect(dialog).to_contain_text(f"seamark run -s file://{path} -p 3 APP.PY")
    dialog.get_by_role("button", name="Another one").click()
    dialog.get_by_label("Savepoint, or retained checkpoint").fill(f"{tmp_path}/none")
    dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog).to_contain_text(f"{tmp_path}/none")
    expect(dialog.locator(".failed")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()

    row.get_by_role("button", name="Dispose").click()
    expect(dialog).to_contain_text(str(path))
    dialog.get_by_role("button", name="No, leave it").click()
    row.get_by_role("button", name="Dispose").click()
    dialog.get_by_role("button", name="Delete it").click()
    expect(dialog).to_contain_text("The savepoint is deleted.")
    dialog.get_by_role("button", name="Close").click()
    assert not path.exists()
    expect(row).to_contain_text("not there")
    expect(row.get_by_role("button", name="Dispose")).to_have_count(0)
    tab.open(f"jobs/{jid}/checkpoints")
    expect(page.locator(".history .tag", has_text="savepoint").first).to_be_visible()


def take_savepoint(tab: Visit, directory: Path) -> Path:
    """Take one by the button; return where it lies."""
    dialog = tab.page.get_by_role("dialog")
    tab.page.get_by_role("button", name="Take a savepoint").click()
    dialog.get_by_label("Directory").fill(str(directory))
    dialog.get_by_role("button", name="Take it").click()
    expect(dialog.locator(".steps .now")).to_be_visible()
    expect(dialog).to_contain_text("The savepoint is whole")
    path = dialog.locator(".path").inner_text()
    assert path.startswith(f"file://{directory}/savepoint-")
    dialog.get_by_role("button", name="Close").click()
    return Path(path.removeprefix("file://"))


def test_a_job_is_stopped_with_a_savepoint_that_outlives_it(
    site: Site, visit: Callable[..., Visit], tmp_path: Path
) -> None:
    jid = site.jid("orders")
    tab = visit()
    tab.open(f"jobs/{jid}/overview")
    page = tab.page
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Stop").click()
    expect(dialog.get_by_label("Directory")).to_have_count(0)
    dialog.get_by_label("With a savepoint").check()
    dialog.get_by_label("Directory").fill(str(tmp_path))
    expect(page.locator(".head")).not_to_have_text(page.locator(".head").inner_text())
    # The page has gone on meanwhile, and no typed text is lost.
    expect(dialog.get_by_label("Directory")).to_have_value(str(tmp_path))
    dialog.get_by_label("Drain").check()
    dialog.get_by_role("button", name="Stop the job").click()
    expect(dialog).to_contain_text("The job has stopped with a savepoint: finished")
    path = Path(dialog.locator(".path").inner_text().removeprefix("file://"))
    assert json.loads((path / "savepoint.json").read_text())["body"]["drained"]
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("h1")).to_contain_text("finished")
    assert site.drivers["orders"].wait(60) == 0
    expect(page.locator("main")).to_contain_text("The last epoch")

    # Nobody can be asked for a plan now: the page has the command, and disposes by itself.
    tab.open(f"jobs/{jid}/savepoints")
    expect(page.locator("main")).to_contain_text(f"seamark run -s file://{path} --plan APP.PY")
    expect(page.get_by_role("button", name="Restore plan")).to_have_count(0)
    row = page.locator(".savepoints > tbody").first
    expect(row).to_contain_text(str(path))
    row.get_by_role("button", name="Dispose").click()
    dialog.get_by_role("button", name="Delete it").click()
    expect(dialog).to_contain_text("The savepoint is deleted.")
    assert not path.exists()


def test_a_lost_connection_is_said_and_found_again(site: Site, visit: Callable[..., Visit]) -> None:
    jid = site.jid("clicks")
    tab = visit()
    tab.open(f"jobs/{jid}/overview")
    tab.wait_for(".recent rect")
    site.dashboard.kill()
    banner = tab.page.get_by_text("No connection to the dashboard")
    expect(banner).to_be_visible()
    expect(tab.page.locator(".recent rect").first).to_be_visible()  # the last data stays
    tab.faults.clear()  # the console tells of the failed request
    site.dashboard.start()
    expect(banner).to_have_count(0)
    tab.faults.clear()


def test_a_driver_that_was_killed_is_shown_as_such(site: Site, visit: Callable[..., Visit]) -> None:
    jid = site.jid("clicks")
    tab = visit()
    tab.open(f"jobs/{jid}/configuration")
    tab.wait_for("text=checkpoint.interval")
    site.drivers["clicks"].kill_tree()
    expect(tab.page.locator("h1")).to_contain_text("unreachable")
    expect(tab.page.locator("main")).to_contain_text("The driver of this job does not answer.")
    expect(tab.page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(tab.page.locator("main")).to_contain_text("The driver answered last")
    tab.page.reload()
    expect(tab.page.locator("main")).to_contain_text("checkpoint.interval")  # it is stored
    expect(tab.page.locator("main")).to_contain_text("What is guaranteed")
    tab.open(f"jobs/{jid}/checkpoints")
    expect(tab.page.locator(".history > tbody")).not_to_have_count(0)
    tab.open("")
    row = tab.page.get_by_role("row").filter(has_text="clicks")
    expect(row).to_contain_text("unreachable")
