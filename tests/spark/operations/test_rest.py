"""How: a job runs in a driver of its own; the test asks it over HTTP, finds it by `seamark list`,
kills it by SIGKILL, starts it again and stops it. Its answers are held against its own OpenAPI
document by schemathesis, with made-up requests, good and bad."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

from seamark.cli.main import app
from tests.chaos.driver import Driver, wait_until
from tests.tokens import read_token

SPARK = "in Spark's settings"
SECRETS = {
    "in the environment": "aws+Secret/0123456789",
    "in a sink": "s3a-secret-of-the-sink",
    SPARK: "s3a-secret-of-spark",
    "in a message": "secret-of-the-dsn",
}
MESSAGE = (
    "connect postgresql://me:secret-of-the-dsn@db/x with password=secret-of-the-dsn failed; tried "
    "s3a-secret-of-the-sink, s3a-secret-of-spark and aws+Secret/0123456789"
)
PROGRAM = f"""
import logging
from pathlib import Path
import seamark as sm

logging.getLogger("seamark").addHandler(logging.FileHandler("seamark.log"))

def look(batches):
    for batch in batches:
        if Path("fail").exists():
            raise ValueError({MESSAGE!r})
        yield batch

job = sm.Job(
    "clicks",
    sm.CheckpointConfig(
        storage="store", interval="200ms",
        restart_strategy=sm.RestartStrategy.fixed_delay(attempts=99, delay="100ms"),
        savepoint_dir="s3a://bucket/savepoints",
    ),
    rest=sm.RestConfig(requests_per_second=1000),
)
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
hadoop = {{"fs.s3a.secret.key": "s3a-secret-of-the-sink"}}
job.sink(
    rows.select("row").mapInArrow(look, "row long"),
    sm.FileSink("out", format="json", hadoop=hadoop), uid="files",
)
if __name__ == "__main__":
    job.run()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def drivers(home: Path) -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill_tree()


def start(home: Path, drivers: list[Driver], *settings_given: str) -> Driver:
    spark = f"--conf spark.hadoop.fs.s3a.secret.key={SECRETS[SPARK]}"
    environment = {
        "AWS_SECRET_ACCESS_KEY": SECRETS["in the environment"],
        "BUCKET_ACCESS_KEY": home.name,  # a name in the storage's path: it stays whole
        "PYSPARK_SUBMIT_ARGS": f"{spark} pyspark-shell",
        "SEAMARK_SETTINGS": json.dumps(settings_given),
    }
    log = home / f"driver-{len(drivers)}.log"
    driver = Driver(home / "app.py", {}, log, environment=environment)
    drivers.append(driver)
    return driver


def listed(home: Path, *options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["list", "--storage", f"{home}/store", "--json", *options])
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


def running(home: Path, driver: Driver) -> dict[str, Any]:
    def found() -> Any:
        assert driver.returncode is None, driver.tail()
        return [job for job in listed(home) if job["state"] == "RUNNING"]

    return dict(wait_until("a job that is listed as RUNNING", found, 240)[0])


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as page:
        return json.load(page)


def check_pages(url: str, jid: str) -> None:
    assert get(f"{url}/overview")["jobs-running"] == 1
    assert get(f"{url}/jobs") == {"jobs": [{"id": jid, "status": "RUNNING"}]}
    (shown,) = get(f"{url}/jobs/overview")["jobs"]
    assert (shown["jid"], shown["name"], shown["restarts"]) == (jid, "clicks", 0)
    job = f"{url}/jobs/{jid}"

    def completed() -> Any:
        history = get(f"{job}/checkpoints")["history"]
        ids = [checkpoint["id"] for checkpoint in history if checkpoint["status"] == "COMPLETED"]
        found = [get(f"{job}/checkpoints/details/{id_}") for id_ in ids[:3]]
        # Spark's report of a source is left out where it comes too late; the first epoch may be
        # empty.
        return [one for one in found if set(one["tasks"]) == {"rows", "files"} and one["rows"]]

    one = wait_until("a completed checkpoint with both operators", completed, 240)[0]
    check_graph(job)
    page = get(f"{job}/checkpoints/details/{one['id']}/subtasks/files")
    assert sum(subtask["rows"] for subtask in page["subtasks"]) == one["rows"] > 0
    assert get(f"{job}/checkpoints/config")["interval"] == 200
    setting = get(f"{job}/config")["execution-config"]["user-config"]["checkpoint.interval"]
    assert setting == {"value": "200ms", "origin": "program"}
    assert get(f"{job}/exceptions")["exceptionHistory"] == {"entries": [], "truncated": False}
    assert get(f"{job}/guarantees")["guarantee"] == "exactly-once"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{url}/jobs/{'0' * 32}")
    assert refused.value.code == 404
    assert "not found" in json.load(refused.value)["errors"][0]


def check_live_pages(job: str, jid: str) -> None:
    columns = get(f"{job}/series")
    assert {len(column) for column in columns.values()} == {len(columns["id"])}
    assert columns["id"] == sorted(columns["id"])
    place = columns["status"].index("COMPLETED")
    phases = ("read_and_process", "pre_commit", "decision", "commit")
    assert sum(columns[p][place] for p in phases) == columns["end_to_end_duration"][place] > 0
    assert any(columns["records_out"]), "the first epoch may be empty"
    assert columns["lag"][place] is None
    since = columns["trigger_timestamp"][1]
    assert get(f"{job}/series?since={since}")["id"][0] == columns["id"][1]

    seen = set()

    def both() -> Any:
        epoch = get(f"{job}/epoch")
        seen.add(epoch["phase"])
        assert (epoch["id"] == -1) == (epoch["phase"] == "IDLE")
        assert epoch["id"] == -1 or epoch["id"] > epoch["last-completed"]
        return epoch["id"] > 0 and epoch["last-completed"] > 0

    wait_until("an epoch under way", both, 240)
    found = wait_until(
        "an open transaction", lambda: get(f"{job}/transactions")["transactions"], 240, 0.005
    )[0]
    assert (found["sink"], found["generation"]) == ("files", 1)
    assert found["state"] in ("pre-committed", "prepared", "decided", "sealed", "committed")
    assert found["transaction"]
    lineage = get(f"{job}/lineage")
    assert (lineage["jid"], lineage["generation"], lineage["restored"]) == (jid, 1, None)
    assert [(e["number"], e["state"]) for e in lineage["executions"]] == [(1, "RUNNING")]


def check_graph(job: str) -> None:
    def flowing() -> Any:
        page = get(job)
        rates = [vertex["metrics"]["records-per-second"] for vertex in page["vertices"]]
        return page if all(rates) else None

    page = wait_until("rates of the source and the sink", flowing, 240)
    rows, files = page["vertices"]
    assert (rows["id"], rows["kind"], rows["status"]) == ("rows", "source", "RUNNING")
    assert (files["kind"], files["has-uid"], files["guarantee"]) == ("sink", True, "exactly-once")
    assert rows["metrics"]["read-records"] >= files["metrics"]["write-records"] > 0
    assert files["metrics"]["write-bytes"] > 0
    for vertex in (rows, files):
        assert 0 < vertex["metrics"]["busy-share"] <= 1
        assert vertex["metrics"]["lag-records"] is None
    nodes = {node["id"]: node["inputs"] for node in page["plan"]["nodes"]}
    assert nodes == {"rows": [], "files": [{"id": "rows", "num": 0}]}


def send(method: str, url: str, token: str | None, body: Any = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as page:
            return page.status, json.load(page)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def check_changes(url: str, jid: str) -> None:
    """With the job's token, and with none, another job's or an earlier driver's: these must do
    nothing."""
    token = read_token(jid)
    posted = ("/checkpoints", "/savepoints", "/stop", "/restore-plan")
    changing = [("PATCH", "?mode=cancel"), *(("POST", path) for path in posted)]
    paths = [(method, f"{url}/jobs/{jid}{path}") for method, path in changing]
    for method, path in [*paths, ("POST", f"{url}/savepoint-disposal")]:
        for wrong in (None, "", "a" * 43, token[:-1] if token else None):
            status, answer = send(method, path, wrong)
            assert status == 401, (method, path, wrong)
            assert "needs the job's token" in answer["errors"][0]
    assert send("POST", f"{url}/jobs/{'0' * 32}/stop", token)[0] == 404
    assert get(f"{url}/jobs/{jid}")["state"] == "RUNNING"

    status, asked = send("POST", f"{url}/jobs/{jid}/checkpoints", token)
    assert status == 202
    answer = completed(f"{url}/jobs/{jid}/checkpoints/{asked['request-id']}")
    assert (
        get(f"{url}/jobs/{jid}/checkpoints")["latest"]["completed"]["id"] >= answer["checkpointId"]
    )
    assert send("GET", f"{url}/jobs/{jid}/stop/{asked['request-id']}", None)[0] == 404


def check_secrets(home: Path, url: str, jid: str) -> None:
    """A failure with a message full of secrets is told on many pages, without them."""
    job = f"{url}/jobs/{jid}"
    (home / "fail").touch()
    _, asked = send("POST", f"{job}/checkpoints", read_token(jid))
    completed(f"{job}/checkpoints/{asked['request-id']}")  # failed, if it was quick enough
    failed = wait_until(
        "a failed checkpoint", lambda: get(f"{job}/checkpoints")["latest"]["failed"], 240
    )
    (home / "fail").unlink()
    wait_until("the restart", lambda: get(job)["state"] == "RUNNING" and get(job)["restarts"], 240)
    last = get(f"{job}/checkpoints")["latest"]["completed"]
    assert last["external_path"].startswith(f"file://{home}/store/clicks/epochs/")
    document = get(f"{url}/openapi.json")
    pages = [path for path, verbs in document["paths"].items() if "get" in verbs]
    texts = {}
    for page in ["/openapi.json", "/nowhere", *pages]:
        names = {"jid": jid, "checkpoint_id": failed["id"], "vertex_id": "files"}
        path = page.format(**names, trigger_id=asked["request-id"])
        texts[path] = ask(url, "GET", path).body.decode()
    for page, told in (("/exceptions", 1), ("/checkpoints", 1), ("/config", 0)):
        assert texts[f"/jobs/{jid}{page}"].count("connect postgresql://***@db/x") >= told
    assert "s3a://bucket/savepoints" in texts[f"/jobs/{jid}/config"]
    stored = next(home.glob("store/clicks/executions/1/started.json")).read_text()
    assert "s3a://bucket/savepoints" in stored  # the things outliving the driver
    texts["started.json"] = stored
    texts["seamark.log"] = (home / "seamark.log").read_text()
    for kind in ("executions/1/failure.*.json", "statistics/*.json"):
        texts[kind] = "".join(path.read_text() for path in home.glob(f"store/clicks/{kind}"))
    for text in ("seamark.log", "executions/1/failure.*.json", "statistics/*.json"):
        assert "connect postgresql://***@db/x" in texts[text], text
    token = read_token(jid)
    for page, text in texts.items():
        for where, secret in {**SECRETS, "the token": token or "?"}.items():
            assert secret not in text, f"{page} tells the secret {where}"
            assert json.dumps(secret)[1:-1] not in text, f"{page} tells the secret {where}"


class Answer(NamedTuple):
    """The answer; header names are found in any case."""

    status: int
    headers: HTTPMessage
    body: bytes


def ask(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    """Send a request as it is, without a client library's mending; read the answer."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body or None, named)
    answer = connection.getresponse()
    found = Answer(answer.status, answer.headers, answer.read())
    connection.close()
    return found


def check_protection(url: str, jid: str) -> None:
    here = urlsplit(url).netloc
    for host in (here, "localhost", "127.0.0.1:1", "[::1]:80"):
        assert ask(url, "GET", "/overview", Host=host).status == 200
    for host in (
        "evil.example",
        f"evil.example:{urlsplit(url).port}",
        "127.0.0.1.evil.example",
        "",
    ):
        assert ask(url, "GET", "/overview", Host=host).status == 421

    origin = {"Origin": "http://evil.example"}
    read = ask(url, "GET", f"/jobs/{jid}", **origin)
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "x"}
    preflight = ask(url, "OPTIONS", f"/jobs/{jid}/stop", **origin, **asked)
    assert (read.status, preflight.status) == (200, 405)
    for answer in (read, preflight):
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert read.headers["X-Content-Type-Options"] == "nosniff"

    token = {"Authorization": f"Bearer {read_token(jid)}"}
    json_ = {"Content_Type": "application/json"}
    large = b'{"triggerId": "' + b"a" * 70_000 + b'"}'
    stop = f"/jobs/{jid}/stop"
    assert ask(url, "POST", stop, large, **token, **json_).status == 413
    chunked = HTTPConnection(here, timeout=20)
    chunked.request(
        "POST", stop, iter([large[:100], large[100:]]), {**token, **json_}, encode_chunked=True
    )
    assert chunked.getresponse().status == 413
    chunked.close()
    for wrong in (b"{", b"[]", b'{"triggerId": "../../x"}', b'{"triggerId": 7}'):
        refused = ask(url, "POST", stop, wrong, **token, **json_)
        assert (refused.status, list(json.loads(refused.body))) == (422, ["errors"])
    for verb, action in (
        *(("POST", a) for a in ("stop", "checkpoints", "savepoints", "restore-plan")),
        ("PATCH", ""),
    ):
        path = f"/jobs/{jid}/{action}".rstrip("/")
        refused = ask(url, verb, path, b'{"colour": "red"}', **token, **json_)
        assert refused.status == 422, (verb, action)
        assert any(why.startswith("body.colour: ") for why in json.loads(refused.body)["errors"])
    for method in ("PUT", "DELETE", "TRACE", "BREW", "HEAD"):
        refused = ask(url, method, stop, **token)
        assert (refused.status, refused.headers["Allow"]) == (405, "POST"), method
    assert ask(url, "GET", "/" + "a" * 9_000).status == 414
    assert ask(url, "GET", "/overview", X="a" * 17_000).status == 431
    assert ask(url, "GET", "/%2e%2e/%2e%2e/etc/passwd").status == 404
    assert get(f"{url}/jobs/{jid}")["state"] == "RUNNING"

    page = f"/jobs/{jid}/series?since=1"

    def unchanged() -> bool:
        tag = ask(url, "GET", page).headers["ETag"]
        return ask(url, "GET", page, If_None_Match=tag).status == 304

    wait_until("two requests between two epochs", unchanged, 240)


def check_the_holder_of_the_token_is_kept_apart(home: Path, url: str) -> None:
    """Others have used up their rate, and hold every possible connection."""
    place = (urlsplit(url).hostname, urlsplit(url).port)
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            line = stack.enter_context(socket.create_connection(place, 20))
            line.sendall(b"GET /overview HTTP/1.1\r\nHost: localhost\r\nX-More: ")
        # Several: the rate allows some again while a slow machine makes the connections.
        assert 429 in [ask(url, "GET", "/jobs").status for _ in range(30)]
        assert [job["state"] for job in listed(home)] == ["RUNNING"]
        for verb in ("checkpoint", "info"):
            done = CliRunner().invoke(app, [verb, "clicks", "--storage", f"{home}/store"])
            assert done.exit_code == 0, done.output


def completed(url: str, pause_s: float = 0.1) -> Any:
    """Return the outcome of an operation, when it is done."""

    def done_page() -> Any:
        return [page for page in [get(url)] if page["status"]["id"] == "COMPLETED"]

    done = wait_until(url, done_page, 120, pause_s)
    return done[0]["operation"]


def check_against_the_openapi_document(url: str, jid: str) -> None:
    """Changes of the job are asked for without the token, and with it: unknown ones of other jobs,
    and of this one for checkpoints."""
    authorized = {"Authorization": f"Bearer {read_token(jid)}"}
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    paths = []
    for result in schema.get_all_operations():
        operation = result.ok()
        paths.append(operation.path)

        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answers_as_documented(case: Any) -> None:
            case.call_and_validate()
            if case.method.lower() != "get":
                if case.path.endswith("/checkpoints"):
                    case.path_parameters["jid"] = jid
                case.call_and_validate(headers=authorized)

        answers_as_documented()
    assert "/jobs/{jid}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}" in paths


def test_a_job_is_found_asked_and_told_from_a_dead_one(home: Path, drivers: list[Driver]) -> None:
    (home / "store").mkdir()  # a missing storage is refused, an empty one is not
    assert listed(home, "--all") == []
    first = start(home, drivers)
    job = running(home, first)
    check_pages(job["rest-url"], job["jid"])
    check_live_pages(f"{job['rest-url']}/jobs/{job['jid']}", job["jid"])
    check_changes(job["rest-url"], job["jid"])
    check_protection(job["rest-url"], job["jid"])
    check_secrets(home, job["rest-url"], job["jid"])
    check_against_the_openapi_document(job["rest-url"], job["jid"])

    first.kill_tree()
    assert [j["state"] for j in listed(home)] == ["UNREACHABLE"]
    assert listed(home, "--running") == []

    second = start(home, drivers, "rest.requests_per_second=2")
    again = running(home, second)
    assert again["jid"] == job["jid"]
    assert again["start-time"] > job["start-time"]
    url = f"{again['rest-url']}/jobs/{again['jid']}"
    answers = [ask(url, "GET", "/jobs") for _ in range(30)]
    assert {answer.status for answer in answers} == {200, 429}
    assert answers[-1].headers["Retry-After"] == "1"
    check_the_holder_of_the_token_is_kept_apart(home, url)
    time.sleep(7)
    executions = get(f"{url}/lineage")["executions"]
    assert [(e["number"], e["state"]) for e in executions] == [(2, "RUNNING"), (1, "UNREACHABLE")]
    no_savepoint = {"savepoint": False}  # its savepoint_dir cannot be reached
    status, asked = send("POST", f"{url}/stop", read_token(again["jid"]), no_savepoint)
    assert status == 202
    assert completed(f"{url}/stop/{asked['request-id']}", pause_s=0.7) == {"state": "FINISHED"}
    assert second.wait(60) == 0
    assert read_token(again["jid"]) is None
    assert listed(home) == []
    (ended,) = listed(home, "--all")
    assert (ended["state"], ended["reason"]) == ("FINISHED", "")
    assert ended["end-time"] > ended["start-time"]
