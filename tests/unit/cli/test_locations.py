"""A query of ``format("seamark")`` as `seamark list`, `info`, `explain`, `checkpoints`, `txn` and
`audit` know it, and the dashboard; played without Spark."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.checkpoint.batch_log import StoredLog, identity_of
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.cli.main import app
from seamark.dashboard.jobs import Jobs
from seamark.files.deadline import open_local
from seamark.protocol.batches import Begun, Decided
from tests.unit.datasource.played import IDS, Query, log_of


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    return done.exit_code, done.output + str(done.exception or "")


def ask(*arguments: str) -> tuple[int, str]:
    return call("explain", *arguments)


def into_sqlite(at: Path, **more: str) -> Query:
    """Return a query with its checkpoint below the storage `at`."""
    place = {"checkpointlocation": f"{at}/clicks", "path": f"{at}/x.db", "table": "t"}
    return Query(sink="sqlite", **place, **more)


def test_what_was_decided_and_what_is_open(tmp_path: Path) -> None:
    files = open_local(tmp_path / "seamark")
    identity = identity_of(files, "clicks")
    log = StoredLog(files)
    at = str(tmp_path / "seamark")
    assert "no batch yet" in ask("--location", at)[1]
    log.append(1, Begun(1))
    log.append(2, Decided(0, "q", 1, 1, SinkEpoch(3, (b"a", b"b"))))
    log.append(3, Begun(3))
    code, said = ask("--location", at)
    assert code == 0, said
    assert identity.job_id in said
    assert "batch 0 at" in said
    assert "3 rows in 2 transactions, by Spark's query q" in said
    assert "try 3, begun at" in said
    found = json.loads(ask("--location", at, "--json")[1])
    assert (found["decided"]["batch"], list(found["open_tries"])) == (0, ["3"])
    assert "exactly-once into its sink, if" in found["guarantee"]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    code, said = ask("--location", str(tmp_path))
    assert code != 0
    assert "no query of format" in said
    code, said = ask()
    assert code == 2
    assert "--location DIR" in said
    assert ask("app.py", "--location", str(tmp_path))[0] == 2


def test_a_query_is_listed_as_a_job(tmp_path: Path) -> None:
    query = into_sqlite(tmp_path)
    query.run(0, 1, 2)
    query.run(1, 3)
    query.run(2, 4, commits=False)
    at = ("--storage", str(tmp_path))
    (row,) = json.loads(call("list", *at, "--json")[1])
    assert (row["name"], row["state"]) == ("clicks", "UNOBSERVED")
    assert row["directory"].endswith("/clicks/seamark")
    assert "clicks  UNOBSERVED" in call("list", *at)[1]
    assert call("list", *at, "--running", "--json")[1] == "[]\n"
    found = json.loads(call("info", "clicks", *at, "--json")[1])
    assert found["guarantee"] == "exactly-once"
    assert [part["kind"] for part in found["parts"]] == ["sink"]
    decided = found["location"]["decided"]
    assert (decided["batch"], decided["rows"], decided["rows_in_all"]) == (1, 1, 3)
    assert decided["committed"]
    assert list(found["location"]["open_tries"]) == ["5"]
    code, said = call("info", row["jid"][:8], *at)
    assert code == 0, said
    assert "3 since batch 0" in said
    assert "try 5, begun at" in said
    code, said = call("checkpoints", "clicks", *at)
    assert code == 0, said
    code, said = ask("clicks", *at)
    assert code == 0, said
    assert "if the plan gives the same rows again" in said
    code, said = call("stop", "clicks", *at)
    assert code != 0
    assert "which Spark runs and nobody else can steer" in said


def test_a_run_is_recorded_once_for_each_driver(tmp_path: Path) -> None:
    query = into_sqlite(tmp_path)
    query.run(0, 1)
    query.run(1, 2)
    query.end_spark()  # its workers; the process that stands for Spark goes on
    query.run(2, 3)
    assert [*(tmp_path / "clicks/seamark/executions").iterdir()] == [
        tmp_path / "clicks/seamark/executions/1"
    ]


def test_no_secret_is_stored(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    query = into_sqlite(tmp_path, **{"fs.s3a.secret.key": secret})
    query.options["queryname"] = "clicks"
    query.run(0, 1)
    for file in (tmp_path / "clicks/seamark").rglob("*.json"):
        assert secret not in file.read_text()


def test_the_dashboard_knows_it(tmp_path: Path) -> None:
    query = into_sqlite(tmp_path)
    query.run(0, 1, 2)
    query.run(1, 3)
    jobs = Jobs(tmp_path.as_uri())
    (row,) = json.loads(jobs.overview("o").body)["jobs"]
    assert (row["name"], row["state"], row["checkpoints"]["completed"]) == (
        "clicks", "UNOBSERVED", 2,
    )  # fmt: skip
    assert row["last-checkpoint"]["id"] == 1
    found = jobs.page(row["jid"], "c", lambda job: jobs.checkpoints(job, 10, None, None))
    history = json.loads(found.body)["history"]
    assert [(one["id"], one["rows"], one["status"]) for one in history] == [
        (1, 1, "COMPLETED"), (0, 2, "COMPLETED"),
    ]  # fmt: skip
    open_ = json.loads(jobs.from_driver(row["jid"], "transactions").body)
    assert open_["transactions"] == []
    newest = max(log_of(tmp_path / "clicks/seamark").glob("*.committed.json"))
    newest.unlink()
    (left,) = json.loads(Jobs(tmp_path.as_uri()).from_driver(row["jid"], "transactions").body)[
        "transactions"
    ]
    assert (left["epoch"], left["verdict"]) == (1, "must commit")


def test_what_is_open_at_the_sink(tmp_path: Path) -> None:
    query = into_sqlite(tmp_path)
    query.run(0, 1, 2)
    query.run(1, 3, commits=False)
    at = ("--location", f"{tmp_path}/clicks/seamark")
    found = json.loads(call("txn", "list", *at, "--json")[1])
    assert [(one["sink"], one["epoch"], one["verdict"]) for one in found] == [
        ("sink", 1, "unknown")  # Spark's tasks may be at it
    ]
    query.end_spark()
    query.plan(IDS)
    assert "No transaction is open" in call("txn", "list", *at)[1]


def test_options_with_secrets_are_given_again(tmp_path: Path) -> None:
    query = into_sqlite(tmp_path, **{"fs.s3a.secret.key": "hunter2-hunter2"})
    query.run(0, 1)
    at = ("--location", f"{tmp_path}/clicks/seamark")
    code, said = call("txn", "list", *at)
    assert code == 2
    assert "give fs.s3a.secret.key in a file" in said
    (tmp_path / "options").write_text("fs.s3a.secret.key=hunter2-hunter2\n")
    assert call("txn", "list", *at, "--options", f"{tmp_path}/options")[0] == 0
    (tmp_path / "options").write_bytes(b"fs.s3a.secret.key=\xff\n")
    code, said = call("audit", *at, "--options", f"{tmp_path}/options")
    assert code == 2, said  # 1 would be a fault at the target
    assert "options: it is no text in UTF-8" in said


def test_its_target_is_audited(tmp_path: Path) -> None:
    query = into_sqlite(tmp_path)
    query.run(0, 1, 2)
    query.run(1, 3)
    at = ("--location", f"{tmp_path}/clicks/seamark")
    code, said = call("audit", *at)
    assert code == 0, said
    assert "3 rows expected, 3 found" in said
    code, said = call("audit", *at, "--epochs", "1")  # no column tells the rows' epoch
    assert code == 4, said
    assert "No sink was compared" in said and "Nothing is wrong" not in said
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("DELETE FROM t WHERE id = 2")
    code, said = call("audit", *at)
    assert code == 1, said
    assert "missing: 1 row" in said


def test_files_are_audited_by_their_batches(tmp_path: Path) -> None:
    query = Query(
        sink="files", path=f"{tmp_path}/out", format="parquet",
        checkpointlocation=f"{tmp_path}/checkpoint",
    )  # fmt: skip
    query.run(0, 1, 2)
    query.run(1, 3)
    max((tmp_path / "out").glob("*.parquet")).unlink()
    code, said = call("audit", "--location", f"{tmp_path}/checkpoint/seamark")
    assert code == 1, said
    assert "compared by transaction: 3 rows expected, 2 found" in said
    assert "epoch 1" in said


def test_a_damaged_entry_of_the_log_is_no_fault_of_the_target(tmp_path: Path) -> None:
    for sink, more in (
        ("files", {"path": f"{tmp_path}/out", "format": "parquet"}),
        ("sqlite", {"path": f"{tmp_path}/x.db", "table": "t", "keys": "id"}),
    ):
        query = Query(sink=sink, checkpointlocation=f"{tmp_path}/{sink}/q", **more)
        for batch in range(3):
            query.run(batch, batch, 7)
        decision_on_batch_1 = log_of(tmp_path / sink / "q/seamark") / "4.json"
        decision_on_batch_1.write_text("{")
        code, said = call("audit", "--location", f"{tmp_path}/{sink}/q/seamark")
        assert code == 0, said
        assert "epoch 1" in said


@pytest.mark.parametrize("by", ["--location", ""])
@pytest.mark.parametrize(
    "verb",
    [
        "show",
        "commit --all-lingering",
        "abort --all-lingering",
        "accept-loss --epoch 1 --sink sink --reason none",
    ],
)
def test_a_location_s_transactions_are_ended_by_its_query(
    verb: str, by: str, tmp_path: Path
) -> None:
    query = Query(sink="sqlite", path=f"{tmp_path}/t.db", table="t", location=f"{tmp_path}/q")
    query.write(query.plan(IDS), 0, 1)
    query.end_spark()
    code, said = call("txn", *verb.split(), *filter(None, [by]), f"{tmp_path}/q")
    said = " ".join(said.replace("│", "").split())
    assert code == 2, said
    assert "the next start of its query commits what is decided and aborts the rest" in said
    assert "a new location and the option adopt" in said
