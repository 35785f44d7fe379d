"""The pages of jobs that have ended, in a real browser: what needs no driver. The storage is
written by the drivers' own code (`stored.py`). axe, Deque's checker of accessibility, reads each
page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from seamark.model.job_graph import JobGraph, Vertex
from tests.dashboard.chromium import PATIENCE_MS, Visit
from tests.dashboard.server import Dashboard
from tests.dashboard.stored import JOB_ID, write_job
from tests.unit.datasource.played import Query

expect.set_options(timeout=PATIENCE_MS)

WIDE_ID = "ef" * 16
UNKNOWN = "\N{EN DASH}"
SOURCES, STEPS = 4, 3


def wide_graph() -> JobGraph:
    """Four sources, three operators behind each, a join of two, and a sink behind each operator."""
    found = []
    for source in range(SOURCES):
        found.append(Vertex(f"source-{source}", "source", "Kafka topic"))
        fed = f"source-{source}"
        for step in range(STEPS):
            uid = f"step-{source}-{step}"
            found.append(Vertex(uid, "operator", "stateStoreSave", (fed,)))
            found.append(Vertex(f"sink-{source}-{step}", "sink", "Kafka topic", (uid,)))
            fed = uid
    found.append(Vertex("both", "operator", "join", ("step-0-2", "step-1-2")))
    found.append(Vertex("joined", "sink", "Delta table", ("both",)))
    return JobGraph(tuple(found))


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    root = tmp_path_factory.mktemp("dashboard")
    taken = {40: {"counts": 100, "old": 5}, 90: {"counts": 250, "new": 7}}
    write_job(root / "store", "clicks", 120, failed=frozenset({10, 60}), savepoints=taken)
    write_job(root / "store", "wide", 3, job_id=WIDE_ID, graph=wide_graph())
    database = {"path": f"{root}/x.db", "table": "t"}
    query = Query(sink="sqlite", checkpointlocation=f"{root}/store/orders", **database)
    query.run(0, 1, 2)
    (root / "app.py").write_text("raise SystemExit('seamark: no such topic')")
    with Dashboard(root / "store", root / "home", "--allow-run", f"{root}/app.py") as started:
        yield started


@pytest.fixture
def tab(dashboard: Dashboard, chromium: Browser) -> Iterator[Visit]:
    opened = Visit(chromium, dashboard.address)
    yield opened
    opened.close()
    assert opened.faults == []


PAGES = {
    "": ".jobs tbody tr",
    f"jobs/{JOB_ID}/overview": ".recent rect",
    f"jobs/{JOB_ID}/checkpoints/history": ".history tbody",
    f"jobs/{JOB_ID}/checkpoints/history/7": ".operators tbody",
    f"jobs/{JOB_ID}/checkpoints/summary": "text=p99.9",
    f"jobs/{JOB_ID}/savepoints/40/90": "text=Two savepoints compared",
    f"jobs/{JOB_ID}/timeline": ".timeline .run",
    f"jobs/{JOB_ID}/plots": ".uplot canvas",
    f"jobs/{JOB_ID}/exceptions": "text=CheckpointExpiredError",
    f"jobs/{JOB_ID}/executions": "text=Began anew",
    f"jobs/{JOB_ID}/configuration": "text=checkpoint.interval",
    f"jobs/{WIDE_ID}/overview": ".node.sink",
}


@pytest.mark.parametrize(("width", "colours"), [(390, "dark"), (1440, "light")])
def test_axe_finds_nothing(
    dashboard: Dashboard, chromium: Browser, width: int, colours: str
) -> None:
    tab = Visit(chromium, dashboard.address, width=width, colours=colours)  # type: ignore[arg-type]
    found = []
    for path, there in PAGES.items():
        tab.open(path)
        tab.wait_for(there)
        assert tab.overflow() <= 0, path
        for fault in Axe().run(tab.page).response["violations"]:
            places = [place["html"][:200] for place in fault["nodes"][:3]]
            found.append((path, fault["id"], fault["help"], places))
    tab.close()
    assert found == []
    assert tab.faults == []


def test_a_query_of_a_data_source_is_shown(tab: Visit) -> None:
    tab.wait_for(".jobs tbody tr")
    expect(tab.page.locator("dt", has_text="Unobserved")).to_be_visible()
    tab.page.get_by_role("link", name="orders").click()
    expect(tab.page.get_by_text("Spark runs it, and tells nobody when it ends")).to_be_visible()
    job = re.search(r"jobs/\w+", tab.page.url)
    assert job is not None
    for path in ("checkpoints/history", "timeline", "executions", "configuration", "exceptions"):
        tab.open(f"{job[0]}/{path}")
        expect(tab.page.locator("h1")).to_contain_text("orders")


def test_a_graph_of_thirty_parts_is_readable(tab: Visit) -> None:
    tab.open(f"jobs/{WIDE_ID}/overview")
    tab.wait_for(".node.sink")
    # One look at all boxes: what loads meanwhile moves the graph.
    boxes = tab.page.locator(".node").evaluate_all(
        "nodes => nodes.map((node) => node.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 2 * SOURCES * STEPS + SOURCES + 2
    for number, one in enumerate(boxes):
        assert one["width"] > 100
        assert one["height"] > 34
        for other in boxes[number + 1 :]:
            beside = (
                one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            )
            above = (
                one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            )
            assert beside or above


def test_a_link_opens_one_checkpoint(tab: Visit) -> None:
    tab.open(f"jobs/{JOB_ID}/timeline")
    tab.page.get_by_role("button", name="all").click()
    tab.page.get_by_role("link", name=re.compile("^Epoch 42: ")).focus()
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("h2", has_text="Checkpoint 42")).to_be_visible()
    tab.page.reload()
    expect(tab.page.locator("h2", has_text="Checkpoint 42")).to_be_visible()
    tab.page.get_by_role("link", name=re.compile("^43 ")).click()
    expect(tab.page.locator("h2", has_text="Checkpoint 43")).to_be_visible()
    tab.page.get_by_role("button", name="Subtasks of files").click()
    for table in (".operators > tbody > tr:first-child", ".subtasks tbody tr"):
        rows = [row.locator("th, td").all_inner_texts() for row in tab.page.locator(table).all()]
        columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=False)]
        assert len(columns) > 4
        assert not [column for column in columns if set(column) <= {"", UNKNOWN}]


def test_the_timeline_has_what_happened(tab: Visit) -> None:
    tab.open(f"jobs/{JOB_ID}/timeline")
    tab.page.get_by_role("button", name="all").click()
    expect(tab.page.locator(".timeline")).to_be_visible()
    expect(tab.page.get_by_role("link", name=re.compile("^Epoch "))).to_have_count(120)
    expect(tab.page.get_by_role("link", name=re.compile("^Epoch 10: failed"))).to_have_count(1)
    expect(tab.page.get_by_role("link", name=re.compile("^CheckpointExpired"))).to_have_count(2)
    expect(tab.page.get_by_role("link", name=re.compile("^Savepoint of "))).to_have_count(2)
    expect(tab.page.get_by_role("link", name=re.compile("^Run 1"))).to_have_count(1)


def test_two_savepoints_are_compared(tab: Visit) -> None:
    tab.open(f"jobs/{JOB_ID}/savepoints")
    tab.page.get_by_role("button", name="Compare two savepoints").click()
    table = tab.page.get_by_role("region", name="Operators of both savepoints")
    expect(table.get_by_role("row", name="counts")).to_contain_text("100 → 250")
    expect(table.get_by_role("row", name="counts")).to_contain_text("+150")
    expect(table.get_by_role("row", name="old")).to_contain_text("gone")
    expect(table.get_by_role("row", name="new")).to_contain_text("new")
    assert tab.page.url.endswith(f"#/jobs/{JOB_ID}/savepoints/40/90")


def test_a_program_is_started_only_if_it_was_named(tab: Visit, dashboard: Dashboard) -> None:
    tab.page.get_by_role("button", name="Start a program").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Start it").click()
    expect(dialog).to_contain_text("has ended (exit code 1)")
    expect(dialog).to_contain_text("no such topic")  # its own words
    body = json.dumps({"program": "/etc/passwd"}).encode()
    kind = {"Content-Type": "application/json", "X-Requested-With": "seamark"}
    holder = {**kind, "Authorization": f"Bearer {dashboard.token}"}
    refused = dashboard.ask("/programs/run", holder, "POST", body)
    assert refused.status == 403
    assert "--allow-run" in refused.json["errors"][0]
    assert dashboard.ask("/programs/run", kind, "POST", body).status == 401
