"""How: both servers are asked for every page, in this process: a driver's over a job of fixed
values, the dashboard's over a storage written by drivers' own code. Their answers are compared with
earlier ones, in `answers/`: fields, values, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import os
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI

import seamark as sm
from seamark.api.declarations import DeclaredSink, JobDeclaration
from seamark.api.settings import resolve
from seamark.checkpoint.accepted_losses import AcceptedLoss
from seamark.checkpoint.executions import (
    Execution,
    ExecutionEnd,
    ExecutionFailure,
    ExecutionStart,
)
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.checkpoint.statistics import SavepointEnd, describe_savepoint
from seamark.checkpoint.statistics_store import Key, StatisticsRecord, StatisticsStore
from seamark.checkpoint.task_reports import EpochProgress, SinkReport, TaskReport
from seamark.dashboard import routes as dashboard_routes
from seamark.dashboard.jobs import Jobs
from seamark.dashboard.login import Login
from seamark.dashboard.programs import Programs
from seamark.files.local import LocalDirectory
from seamark.guarantees.end_to_end import GuaranteeReport, PartGuarantee, SinkGuarantee
from seamark.model.checkpoint_statistics import TaskCheckpointStatistics
from seamark.model.checkpointing_statistics import CheckpointCounts, RestoredCheckpointStatistics
from seamark.model.guarantee import Guarantee, SinkWay
from seamark.model.job_graph import JobGraph, Vertex
from seamark.model.job_state import JobState
from seamark.model.records import record_of
from seamark.model.redaction import Redactor
from seamark.protocol.states import AttemptState
from seamark.rest.actions import Actions
from seamark.rest.connections import Connections
from seamark.rest.live_job import LiveJob
from seamark.rest.routes import make_app
from seamark.run.failures import CheckpointFailureReason, FailedCheckpoint
from tests.dashboard.stored import BEGUN_S, JOB_ID, write_job

HERE = Path(__file__).parent / "answers"
NOW_S = BEGUN_S + 100
TRIGGER = "12" * 16
NOBODY = "http://127.0.0.1:1"


class Sink:
    """Told of committables alone."""

    way = SinkWay.TWO_PHASE_COMMIT
    transaction_timeout_s = 60.0

    def describe(self) -> str:
        return "JSON files"

    def load(self, committable: bytes) -> Any:
        return SimpleNamespace(handle=committable.decode())


def epoch(number: int, **moments: float) -> EpochProgress:
    sinks = {"files": SinkReport(3, (f"part-{number}".encode(),), 30, 0.1, 0.2)}
    report = TaskReport(0, 0, BEGUN_S + number, BEGUN_S + number + 0.5, sinks)
    return EpochProgress(
        number, 3, AttemptState.PREPARED, 10.0 + number,
        triggered_at=BEGUN_S + number, tasks=(report,), **moments,
    )  # fmt: skip


LOSS = AcceptedLoss(2, 1, "files", ("part-2",), (), 7, "written by hand", "ada@etl", BEGUN_S)


def coordinator(restored: RestoredCheckpointStatistics) -> Any:
    under_way = [
        epoch(4, pre_committed_s=14.2, stored_s=14.3, decided_s=14.4),
        epoch(5, pre_committed_s=15.2),
    ]
    return SimpleNamespace(
        failure=None,
        epochs=SimpleNamespace(
            in_progress=lambda: under_way, holds_back=False, is_full=False
        ),
        last_stored=5, last_committed=3, history=[epoch(3, committed_s=14.0)], generation=2,
        pending_committables=lambda: {"files": 2}, losses=[LOSS],
        identity=SimpleNamespace(
            restored_from={"path": "file:///s/savepoint-1", "job_id": None, "epoch": 7}
        ),
        statistics=SimpleNamespace(
            version="2.17.prepared", restored=restored, unrecorded=lambda: [epoch(2), *under_way],
            savepoints_in_progress=lambda: [describe_savepoint(3, "NATIVE", BEGUN_S + 4)],
        ),
    )  # fmt: skip


def live_job(tmp_path: Path) -> LiveJob:
    directory = write_job(tmp_path, "clicks", 4, failed=frozenset({1}), rest_url=NOBODY)
    store = StatisticsStore(LocalDirectory(directory))
    restored = RestoredCheckpointStatistics(0, round(BEGUN_S * 1e3), False, "file:///x/epochs/0")
    operator = TaskCheckpointStatistics(
        "counts", "operator", "stateStoreSave", store.records()[0].checkpoint.status,
        rows=7, state_size=70, num_subtasks=2,
    )  # fmt: skip
    begun = describe_savepoint(1, "CANONICAL", BEGUN_S + 2)
    whole = SavepointEnd(0.25, "file:///s/savepoint-2", 70, (operator,)).of(begun)
    counts = CheckpointCounts(restored=1, completed=4, failed=1)
    store.write(Key(1, 1, 0, True), StatisticsRecord(whole, counts, restored))
    history = store.read()
    flow = FlowFigures(lambda: 2)
    job = JobDeclaration("clicks", sm.CheckpointConfig(storage="file:///checkpoints"))
    job.sinks["files"] = DeclaredSink("files", cast(Any, Sink()), None, ())
    graph = JobGraph(
        (
            Vertex("rows", "source", "rows"),
            Vertex("counts", "operator", "aggregation", ("rows",), has_uid=False),
            Vertex("files", "sink", "JSON files", ("counts",)),
        )
    ).with_guarantees({})
    failure = ExecutionFailure(BEGUN_S + 1, 1, "OSError", "no more than token=hunter22", True)
    start = ExecutionStart("ab" * 16, "clicks", "here", 4711, BEGUN_S, "http://127.0.0.1:1")
    end = ExecutionEnd(JobState.FAILED, BEGUN_S - 10, "OSError: the disk is full")
    own = Execution(2, start, [failure], None)
    supervisor = SimpleNamespace(
        job_id=JOB_ID, state=JobState.RUNNING, started_at=BEGUN_S, end=None, restarts=1,
        coordinator=coordinator(restored), restarting_s=0.0,
        failed_checkpoints=[
            FailedCheckpoint(1, BEGUN_S, CheckpointFailureReason.EXPIRED, "late")
        ],
        execution=SimpleNamespace(
            failures=[failure], recorded=own,
            earlier=lambda: [Execution(1, start, [failure], end)],
        ),
    )  # fmt: skip

    def nothing(*_: Any, **__: Any) -> Future[str]:
        raise AssertionError("nobody asks for it")

    return LiveJob(
        declaration=job,
        settings=resolve("clicks", job.checkpoint)[1],
        redactor=Redactor(["hunter22"]),
        guarantees=GuaranteeReport(
            mode=Guarantee.EXACTLY_ONCE,
            parts=(
                PartGuarantee("files", "sink", "JSON files", Guarantee.EXACTLY_ONCE, "it commits"),
            ),
            sinks=(SinkGuarantee("files", Guarantee.AT_LEAST_ONCE, "n", "rows", "replay"),),
            guarantee=Guarantee.AT_LEAST_ONCE,
            weakest="rows",
            remedy="replay",
        ),
        graph=graph,
        flow=flow,
        checkpoints=lambda: history,
        take_savepoint=nothing,
        restore_plan=cast(Any, nothing),
        supervisor=lambda: cast(Any, supervisor),
        sink_transactions=cast(Any, nothing),
    )


def ask(app: FastAPI, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Send one GET to an application, and return its status and body."""
    path, _, query = path.partition("?")
    given = {"host": "localhost", **(headers or {})}
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        "scheme": "http", "http_version": "1.1", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def answers(app: FastAPI, paths: list[str], hide: str) -> dict[str, Any]:
    found = {}
    for path in paths:
        status, body = ask(app, path)
        try:
            page = json.loads(body.decode().replace(hide, "STORAGE"))
        except ValueError:
            page = body.decode()
        found[path] = {"status": status, "page": page}
    return found


def compare(name: str, found: Any) -> None:
    file = HERE / f"{name}.jsonl"
    lines = [json.dumps(pair, sort_keys=True) for pair in sorted(found.items())]
    if os.environ.get("SEAMARK_WRITE_ANSWERS"):
        file.write_text("\n".join(lines) + "\n")
    assert lines == file.read_text().splitlines()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_S)


def pages_of(jid: str) -> list[str]:
    job = f"/jobs/{jid}"
    return [
        job,
        *(
            f"{job}/{page}"
            for page in (
                *("config", "exceptions", "guarantees", "checkpoints", "checkpoints/config"),
                *("checkpoints/details/0", "checkpoints/details/1", "checkpoints/details/99"),
                "checkpoints/details/0/subtasks/files", "checkpoints/details/0/subtasks/nobody",
                f"series?since={round((BEGUN_S + 1) * 1e3)}", "series", "epoch", "transactions",
                "lineage", "losses", f"checkpoints/{TRIGGER}", f"savepoints/{TRIGGER}",
                f"stop/{TRIGGER}", f"restore-plan/{TRIGGER}", f"transactions/{TRIGGER}",
            )
        ),
    ]  # fmt: skip


def test_a_driver_answers_as_before(tmp_path: Path) -> None:
    view = live_job(tmp_path)
    app = make_app(view, Actions(view))
    for checkpoint in reversed(view.checkpoints().history):
        if not checkpoint.is_savepoint:
            view.flow.add(checkpoint)
    paths = ["/jobs", "/jobs/overview", f"/savepoint-disposal/{TRIGGER}", "/nowhere"]
    paths += ["/health", "/ready"]
    paths += [*pages_of(JOB_ID), f"/jobs/{'0' * 32}", "/jobs/x", f"/jobs/{JOB_ID}/series?since=-1"]
    compare("driver", answers(app, paths, str(tmp_path)))
    ended = [
        record.checkpoint
        for record in StatisticsStore(LocalDirectory(tmp_path / "clicks")).records()
    ]
    records = {str(n): record_of(one) for n, one in enumerate(ended)}
    compare("records", records)
    document = app.openapi()
    document["info"].pop("version")
    schemas = document["components"].pop("schemas")
    compare("openapi", {**document.pop("paths"), **schemas, "": document})
    metrics = ask(app, "/metrics")[1].decode().splitlines()
    passing = ("seamark_job_info", "seamark_job_checkpoint_oldest", "seamark_sink_oldest")
    shown = [line for line in metrics if not line.startswith(passing)]
    compare("metrics", {str(place): line for place, line in enumerate(shown, 1000)})


def test_a_dashboard_answers_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_job(tmp_path)
    write_job(tmp_path, "killed", 2, job_id="ef" * 16, state=None, rest_url=NOBODY)
    storage = f"file://{tmp_path}"
    line = SimpleNamespace(is_proven=False, origin="", expect=_, work=_, rest=_)
    connections = cast(Connections, SimpleNamespace(of=lambda scope: line))
    app = dashboard_routes.make_app(
        Jobs(storage), Programs((), lambda asked: ""), Login("token"), connections
    )
    paths = ["/jobs/overview", "/nowhere", f"/jobs/{'0' * 32}"]
    for jid in (JOB_ID, "ef" * 16):
        paths += [*pages_of(jid), f"/jobs/{jid}/savepoints"]
    history = f"/jobs/{JOB_ID}/checkpoints"
    paths += [
        "/programs", f"/programs/run/{TRIGGER}", f"{history}?limit=1&series=0",
        f"{history}?limit=1", f"{history}?status=FAILED", f"{history}?limit=2&before=1700000003000",
        f"{history}?limit=-1", f"{history}/details/1?triggered=1700000001000",
        f"{history}/details/1?triggered=5",
    ]  # fmt: skip
    compare("dashboard", answers(app, paths, str(tmp_path)))


def _(*_: Any) -> None:
    """Nothing is noted of the connection."""
