"""How: the server runs as a process of its own over a storage written by the drivers' own code
(`stored.py`), and is asked over HTTP. Its pages of a living driver are tested in the browser
(`test_in_browser.py`)."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.cli.main import app
from tests.chaos.driver import REPOSITORY
from tests.dashboard.server import Answer, Dashboard
from tests.dashboard.stored import BEGUN_S, JOB_ID, write_job

JOB = f"/jobs/{JOB_ID}"
KILLED = "ef" * 16


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    root = tmp_path_factory.mktemp("dashboard")
    write_job(root / "store", "clicks", 120, failed=frozenset({10, 11, 60}))
    write_job(root / "store", "killed", 3, job_id=KILLED, state=None)
    with Dashboard(root / "store", root / "home") as dashboard:
        yield dashboard


def test_it_lists_every_job_with_its_last_checkpoint(dashboard: Dashboard) -> None:
    found = {job["name"]: job for job in dashboard.ask("/jobs/overview").json["jobs"]}
    assert found["clicks"]["state"] == "FAILED"
    assert found["clicks"]["reason"] == "OSError: the disk is full"
    assert found["clicks"]["restarts"] == 3
    assert found["clicks"]["checkpoints"]["completed"] == 117
    assert found["clicks"]["last-checkpoint"]["id"] == 116
    assert (found["killed"]["state"], found["killed"]["end-time"]) == ("UNREACHABLE", -1)


def test_the_history_comes_in_parts_and_by_status(dashboard: Dashboard) -> None:
    first = dashboard.ask(f"{JOB}/checkpoints?limit=50").json
    assert first["counts"] == {
        "restored": 0, "total": 120, "in_progress": 0, "completed": 117, "failed": 3
    }  # fmt: skip
    assert [one["id"] for one in first["history"]] == list(range(116, 66, -1))
    assert (first["matching"], first["older"]) == (120, 70)
    last = first["history"][-1]["trigger_timestamp"]
    second = dashboard.ask(f"{JOB}/checkpoints?limit=50&before={last}").json
    assert second["history"][0]["id"] == 66
    assert second["older"] == 20
    failed = dashboard.ask(f"{JOB}/checkpoints?limit=50&status=FAILED").json
    assert [one["id"] for one in failed["history"]] == [58, 10, 10]
    assert failed["matching"] == 3
    whole = dashboard.ask(f"{JOB}/checkpoints").json
    assert len(whole["history"]) == 120
    assert whole["summary"]["end_to_end_duration"]["max"] == 169
    assert dashboard.ask(f"{JOB}/checkpoints?limit=-1").status == 422


def test_each_attempt_of_an_epoch_has_its_own_details(dashboard: Dashboard) -> None:
    newest = dashboard.ask(f"{JOB}/checkpoints/details/10").json
    assert newest["status"] == "COMPLETED"
    assert len(newest["tasks"]["files"]["subtasks"]) == 2
    triggered = round((BEGUN_S + 10) * 1000)
    failed = dashboard.ask(f"{JOB}/checkpoints/details/10?triggered={triggered}").json
    assert (failed["status"], failed["trigger_timestamp"]) == ("FAILED", triggered)
    page = dashboard.ask(f"{JOB}/checkpoints/details/10/subtasks/files").json
    assert [subtask["index"] for subtask in page["subtasks"]] == [0, 1]
    for missing in ("details/9999", "details/10/subtasks/nobody"):
        answer = dashboard.ask(f"{JOB}/checkpoints/{missing}")
        assert answer.status == 404
        assert answer.json["errors"]


def test_the_series_goes_on_where_a_browser_has_stopped(dashboard: Dashboard) -> None:
    whole = dashboard.ask(f"{JOB}/series").json
    assert len(whole["id"]) == 120
    assert whole["status"].count("FAILED") == 3
    place = whole["id"].index(116)
    phases = [whole[name][place] for name in ("read_and_process", "pre_commit", "decision")]
    assert sum(phases) + whole["commit"][place] == whole["end_to_end_duration"][place]
    assert whole["read_and_process"][10] is None  # a failed one
    newer = dashboard.ask(f"{JOB}/series?since={whole['trigger_timestamp'][-2]}").json
    assert newer["id"] == whole["id"][-2:]
    later = dashboard.ask(f"{JOB}/series?since={whole['trigger_timestamp'][-1] + 1}").json
    assert later["id"] == later["lag"] == []


def test_failures_and_executions_are_those_of_all_its_runs(dashboard: Dashboard) -> None:
    failures = dashboard.ask(f"{JOB}/exceptions").json["exceptionHistory"]["entries"]
    assert [failure["epoch"] for failure in failures] == [58, 10, 10]
    lineage = dashboard.ask(f"{JOB}/lineage").json
    assert [one["state"] for one in lineage["executions"]] == ["FAILED"]
    killed = dashboard.ask(f"/jobs/{KILLED}/lineage").json
    assert [one["state"] for one in killed["executions"]] == ["UNREACHABLE"]


def test_no_answer_holds_a_password_that_a_message_had(dashboard: Dashboard) -> None:
    for page in ("checkpoints", "checkpoints/details/58?triggered=1700000060000", "exceptions"):
        said = dashboard.ask(f"{JOB}/{page}").body.decode()
        assert "was not decided" in said
        assert "@db/x" in said
        assert "hunter2" not in said, page


def test_what_only_a_driver_knows_is_not_made_up(dashboard: Dashboard) -> None:
    for page in ("guarantees", "epoch"):
        assert dashboard.ask(f"{JOB}/{page}").status == 204
    left = dashboard.ask(f"{JOB}/transactions").json  # by its stored attempts: there is none
    assert left == {"transactions": [], "truncated": False}
    assert dashboard.ask(f"{JOB}/losses").json == {"losses": []}
    stored = dashboard.ask(f"{JOB}/config").json  # by the driver, when it began
    settings = stored["execution-config"]["user-config"]
    assert settings == {"checkpoint.interval": {"value": "1s", "origin": "program"}}
    page = dashboard.ask(JOB).json
    assert [vertex["id"] for vertex in page["vertices"]] == ["rows", "files"]
    assert page["vertices"][1]["metrics"] == {}


def test_the_graph_of_a_job_outlives_its_driver(dashboard: Dashboard) -> None:
    page = dashboard.ask(JOB).json
    assert [vertex["guarantee"] for vertex in page["vertices"]] == ["exactly-once"] * 2
    edges = {node["id"]: [one["id"] for one in node["inputs"]] for node in page["plan"]["nodes"]}
    assert edges == {"rows": [], "files": ["rows"]}
    assert dashboard.ask(f"/jobs/{'0' * 32}").status == 404


def test_a_page_that_a_browser_has_is_not_sent_again(dashboard: Dashboard) -> None:
    path = f"{JOB}/checkpoints"
    answer = dashboard.ask(path, {"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(answer.body))["history"]) == 120
    assert len(answer.body) < 20_000
    again = dashboard.ask(path, {"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    assert dashboard.ask(path, {"If-None-Match": '"else"'}).status == 200


def test_foreign_hosts_and_large_bodies_are_refused(dashboard: Dashboard) -> None:
    port = dashboard.url.rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        assert dashboard.ask("/jobs/overview", {"Host": host}).status in (400, 421)
    for host in (f"localhost:{port}", f"127.0.0.1:{port}"):
        assert dashboard.ask("/jobs/overview", {"Host": host}).status == 200
    large = dashboard.ask(f"{JOB}/stop", {}, "POST", b"x" * 5000)
    assert large.status == 413
    assert b"413" in send_chunked(int(port), f"{JOB}/stop", dashboard.token)


def send_chunked(port: int, path: str, token: str) -> bytes:
    """Send a body without a length beforehand; return the answer's first line."""
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), 30) as line:
        line.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
            + 8 * chunk
            + b"0\r\n\r\n"
        )
        return line.recv(4096).partition(b"\r\n")[0]


def test_silent_clients_keep_nobody_out(dashboard: Dashboard) -> None:
    port = int(dashboard.url.rpartition(":")[2])
    half = b"GET /jobs/overview HTTP/1.1\r\nHost: localhost\r\nX-More: "
    with contextlib.ExitStack() as stack:
        for number in range(700):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            line.sendall(half if number % 2 else b"")
        assert dashboard.ask("/jobs/overview").status == 200


def test_no_other_origin_may_read_and_the_page_loads_nothing_from_elsewhere(
    dashboard: Dashboard,
) -> None:
    for path in ("/", "/jobs/overview", "/static/app.js", "/nowhere"):
        headers = dashboard.ask(path, {"Origin": "https://evil.example"}).headers
        assert headers["Access-Control-Allow-Origin"] is None
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
    preflight = dashboard.ask(
        f"{JOB}/stop",
        {
            "Origin": "https://evil.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        },
        "OPTIONS",
    )
    assert preflight.status == 405
    assert preflight.headers["Access-Control-Allow-Origin"] is None


def test_what_changes_a_job_needs_the_dashboards_token(dashboard: Dashboard) -> None:
    posted = ("stop", "checkpoints", "savepoints", "restore-plan", "savepoint-disposal")
    actions = [("PATCH", JOB), *(("POST", f"{JOB}/{path}") for path in posted)]
    for method, path in actions:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic a"}):
            refused = dashboard.ask(path, headers, method, b"")
            assert refused.status == 401, (method, path)
            assert dashboard.token not in refused.body.decode()
        if path.endswith("disposal"):
            continue
        allowed = {"Authorization": f"Bearer {dashboard.token}"}
        answer = dashboard.ask(path, allowed, method, b"")
        assert answer.status == 409  # the job's own token is gone with its driver
        assert "driver has ended" in answer.json["errors"][0]


def test_only_what_is_known_as_a_savepoint_of_the_job_is_disposed_of(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    allowed = {
        "Authorization": f"Bearer {dashboard.token}", "Content-Type": "application/json"
    }  # fmt: skip
    (tmp_path / "savepoint.json").touch()

    def dispose(jid: str, body: object) -> Answer:
        path = f"/jobs/{jid}/savepoint-disposal"
        return dashboard.ask(path, allowed, "POST", json.dumps(body).encode())

    refused = dispose(JOB_ID, {"savepoint-path": f"file://{tmp_path}"})
    assert refused.status == 409
    assert "seamark savepoint -d" in refused.json["errors"][0]
    assert (tmp_path / "savepoint.json").exists()
    assert dispose("0" * 32, {"savepoint-path": "x"}).status == 404
    assert dispose(JOB_ID, {}).status == 422
    unknown = dispose(JOB_ID, {"savepoint-path": f"file://{tmp_path}", "force": True})
    assert (unknown.status, unknown.json["errors"][0][:12]) == (422, "body.force: ")
    assert dashboard.ask(f"{JOB}/savepoint-disposal/{'0' * 32}").status == 404
    assert dashboard.ask(f"{JOB}/savepoints").json == {"savepoints": []}


def test_every_module_is_loaded_at_once(dashboard: Dashboard) -> None:
    page = dashboard.ask("/").body.decode()
    static = REPOSITORY / "src/seamark/dashboard/static"
    modules = [*static.glob("*.js"), *static.glob("vendor/*js")]
    assert len(modules) > 15
    for module in modules:
        path = f"/static/{module.relative_to(static)}"
        assert f'"{path}"' in page, path
        assert dashboard.ask(path).headers["Content-Type"].startswith("text/javascript")


def test_only_the_front_ends_own_files_are_served(dashboard: Dashboard) -> None:
    assert dashboard.ask("/static/vendor/uPlot.LICENSE").status == 200
    for path in ("/static/../routes.py", "/static/%2e%2e/routes.py", "/static/", "/openapi.json"):
        assert dashboard.ask(path).status == 404, path


def test_a_storage_without_jobs_is_empty_and_the_server_ends_cleanly(tmp_path: Path) -> None:
    with Dashboard(tmp_path / "none", tmp_path / "home") as dashboard:
        found = dashboard.ask("/jobs/overview").json
        assert found == {"jobs": [], "storage": f"file://{tmp_path}/none"}
        assert not (tmp_path / "none").exists()
        said = dashboard.said()
        assert f"{tmp_path}/none is not there, or is no directory" in said
        assert "check --storage" in said
        assert dashboard.stop() == 0


def test_a_port_that_is_taken_is_a_paragraph(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["dashboard", "--port", port, "--storage", str(tmp_path)])
    assert result.exit_code == 2
    assert f"port {port}" in result.output
    assert "--port 0" in result.output
