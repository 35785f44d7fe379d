"""How: `seamark dashboard` listens on every address of the machine, as for jobs elsewhere. It is
asked over HTTP and by a real browser: as a stranger, with its token, and as a proxy asks. The job
in the browser has a driver with a home and a token of its own, behind HTTPS."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.chaos.driver import wait_until
from tests.dashboard.chromium import PATIENCE_MS, Visit
from tests.dashboard.server import Dashboard
from tests.dashboard.stored import JOB_ID, write_job
from tests.spark.operations.test_rest_elsewhere import TOKEN, driver_elsewhere

SECRET = "the+dashboards/own.token~of=32-characters"
BEARER = {"Authorization": f"Bearer {SECRET}"}
EVERYWHERE = ("--address", "0.0.0.0")
JOB = f"/jobs/{JOB_ID}"
PAGES = ("/jobs/overview", JOB, f"{JOB}/checkpoints", f"{JOB}/config", f"{JOB}/series", "/nowhere")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("login")
    (root / "secret").write_text(SECRET + "\n")
    write_job(root / "store", "clicks", 3)
    return root


@pytest.fixture(scope="module")
def guarded(root: Path) -> Iterator[Dashboard]:
    secret = ("--token-file", str(root / "secret"))
    with Dashboard(root / "store", root / "home", *EVERYWHERE, *secret) as dashboard:
        yield dashboard


def test_a_stranger_sees_nothing(guarded: Dashboard) -> None:
    assert SECRET not in guarded.said()
    assert "plain text" in guarded.said()
    for path in PAGES:
        guarded.ask(path, BEARER)  # a page made for another must not go to a stranger
        for headers in ({}, {"Authorization": f"Bearer {SECRET}x"}, {"X-Forwarded-Email": "a@b"}):
            refused = guarded.ask(path, headers)
            assert refused.status == 401, (path, headers)
            assert SECRET not in refused.body.decode()
            assert "clicks" not in refused.body.decode()
    for method, path in (("PATCH", JOB), ("POST", f"{JOB}/stop")):
        assert guarded.ask(path, {"X-Requested-With": "seamark"}, method, b"").status == 401
    assert guarded.ask("/").status == guarded.ask("/static/login.js").status == 200
    assert guarded.ask("/login").json == {
        "user": "", "may-look": False, "may-change": False, "by-proxy": False
    }  # fmt: skip


def test_the_holder_of_the_token_sees_all_and_may_change(guarded: Dashboard) -> None:
    assert [guarded.ask(path, BEARER).status for path in PAGES] == [200] * 5 + [404]
    assert guarded.ask("/jobs/overview", {**BEARER, "Host": "jobs.example"}).status == 200
    said = guarded.ask("/login", BEARER).json
    assert said["may-look"] and said["may-change"]
    assert guarded.ask(f"{JOB}/stop", BEARER, "POST", b"").status == 409  # the job has ended


def test_a_user_counts_only_as_named_by_the_proxy(root: Path) -> None:
    user, asked = {"X-Forwarded-Email": "ada@example.org"}, {"X-Requested-With": "seamark"}
    header = (*EVERYWHERE, "--login-header", "X-Forwarded-Email")
    with Dashboard(root / "store", root / "home-1", *header, "--proxy", "10.0.0.7") as apart:
        assert apart.ask("/jobs/overview", user).status == 401, "the header is not the proxy's"
    with Dashboard(root / "store", root / "home-2", *header, "--proxy", "127.0.0.0/8") as behind:
        assert behind.token == ""
        assert behind.ask("/jobs/overview", user).status == 200
        assert behind.ask("/login", user).json["user"] == "ada@example.org"
        assert behind.ask(f"{JOB}/stop", {**user, **asked}, "POST", b"").status == 409
        assert behind.ask(f"{JOB}/stop", user, "POST", b"").status == 401, "a foreign page may"
        for none in ({}, asked, {"X-Forwarded-Email": ""}, {"X-Forwarded-User": "ada"}):
            assert behind.ask("/jobs/overview", none).status == 401, none
        port = int(behind.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 30) as line:
            twice = b"X-Forwarded-Email: mine\r\nX-Forwarded-Email: ada@example.org\r\n"
            line.sendall(b"GET /jobs/overview HTTP/1.1\r\nHost: x\r\n" + twice + b"\r\n")
            assert b" 401 " in line.recv(4096).partition(b"\r\n")[0]


def test_a_job_elsewhere_is_changed_after_a_login(tmp_path: Path, chromium: Browser) -> None:
    here = {"SEAMARK_TOKEN": TOKEN, "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    with (
        driver_elsewhere(tmp_path),
        Dashboard(
            tmp_path / "store", tmp_path / "here", *EVERYWHERE, environment=here
        ) as dashboard,
    ):
        tab = Visit(chromium, dashboard.url)
        page = tab.page
        expect.set_options(timeout=PATIENCE_MS)
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        tab.log_in("wrong")
        expect(page.get_by_role("alert")).to_contain_text("not the dashboard's token")
        tab.log_in(dashboard.token)
        page.get_by_role("link", name="clicks").click()
        tab.take_checkpoint()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page.get_by_role("dialog")).to_contain_text("The job has ended")
        bearer = {"Authorization": f"Bearer {dashboard.token}"}

        def state() -> bool:
            (job,) = dashboard.ask("/jobs/overview", bearer).json["jobs"]
            return bool(job["state"] == "CANCELED")

        wait_until("the job has ended", state, 30)
        assert tab.faults == []
        tab.close()
