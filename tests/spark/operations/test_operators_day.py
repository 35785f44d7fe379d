"""How: one day of an operator's life, once by the command line alone and once by REST alone.

A job is started in the background, looked at, told to take a checkpoint and a savepoint, killed by
SIGKILL with its whole tree, found unreachable, started again, stopped with a savepoint; another
job, through spark-submit, goes on from there with another number of state partitions, and is
cancelled; the first savepoint is disposed of. In the end the rows of both outputs together are
there once each, and so is each in the counts. Every step is a process of its own, or an HTTP
request (the start of a driver excepted).
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.chaos.driver import MARK, REPOSITORY, kill_marked, wait_until

PROGRAM = """
import sys
import seamark as sm
from pyspark.sql import functions as F

name = sys.argv[1]
class Changes(sm.FileSink):
    output_modes = ("append", "update")

job = sm.Job(name, sm.CheckpointConfig(interval="2s", savepoint_dir="savepoints"), "update")
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
counts = job.uid(rows.groupBy((F.col("row") % 10).alias("digit")).count(), "digits")
job.sink(rows.select("row"), sm.FileSink("out-" + name, format="json"), uid="files")
job.sink(counts, Changes("counts-" + name, format="json"), uid="counts")
if __name__ == "__main__":
    job.run()
"""
PATIENCE_S = 240


class Site:
    """A directory with a program, and its processes."""

    def __init__(self, directory: Path, program: str = PROGRAM) -> None:
        self.directory = directory
        self._mark = uuid.uuid4().hex
        (directory / "app.py").write_text(program)
        (directory / "seamark.toml").write_text('[checkpoint]\nstorage = "store"\n')
        self.home = directory / "home"
        self._scratch = tempfile.TemporaryDirectory(prefix="sm-")

    def seamark(
        self, *arguments: str, code: int = 0, stdin: int = subprocess.DEVNULL, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line; its exit code must be `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "seamark", *arguments],
            cwd=self.directory,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={
                **{k: v for k, v in os.environ.items() if k != "SEAMARK_CONFIG"},
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
                "SPARK_LOCAL_DIRS": self._scratch.name,
                "SEAMARK_HOME": str(self.home),
                MARK: self._mark,
                **variables,
            },
        )
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def kill_everything(self) -> None:
        kill_marked(self._mark)

    def close(self) -> None:
        self.kill_everything()
        self._scratch.cleanup()

    def rows(self) -> list[int]:
        """Return the visible rows of both jobs."""
        return sorted(row["row"] for row in self.visible("out-*"))

    def counted(self) -> int:
        """Return how many rows both jobs have counted: the last count of each digit, added up."""
        last: dict[int, int] = {}
        for row in self.visible("counts-*"):
            last[row["digit"]] = max(row["count"], last.get(row["digit"], 0))
        return sum(last.values())

    def partitions(self, name: str) -> str:
        """Return a job's number of state partitions, as Spark has it in its newest offset log."""
        logs = (self.directory / "store" / name / "spark/offsets").glob("[0-9]*")
        newest = max(logs, key=lambda path: int(path.name)).read_text()
        settings = json.loads(newest.splitlines()[1])["conf"]
        return str(settings["spark.sql.shuffle.partitions"])

    def visible(self, outputs: str) -> Iterator[Any]:
        """Yield the rows of all directories of a pattern."""
        for file in self.directory.glob(f"{outputs}/*.json"):
            if not file.name.startswith("."):
                yield from map(json.loads, file.read_text().splitlines())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


class Operator(Protocol):
    """The deeds of an operator, by one means or another."""

    def start(self, name: str, *options: str) -> None:
        """Run the program as a job of this name; return when it is RUNNING."""

    def make_mistakes(self, name: str) -> None:
        """Do the forbidden, and change nothing."""

    def state(self, name: str) -> str: ...

    def restored_from(self, name: str) -> str | None: ...

    def completed(self, name: str) -> dict[int, str]:
        """Return the path of each completed checkpoint."""

    def checkpoint(self, name: str) -> int:
        """Take one now, and return its id when it is completed."""

    def savepoint(self, name: str) -> str:
        """Take one where the job's settings say, and return its path when it is whole."""

    def savepoints(self, name: str) -> dict[str, int]:
        """Return the epochs of the job's savepoints by their paths, the newest first."""

    def stop_with_savepoint(self, name: str) -> str:
        """Return the savepoint's path when the job has ended."""

    def dispose(self, name: str, path: str) -> None: ...

    def cancel(self, name: str) -> None: ...


def live_a_day(site: Site, operator: Operator) -> None:
    operator.start("clicks", "-p", "4")
    assert operator.state("clicks") == "RUNNING"
    assert operator.restored_from("clicks") is None
    operator.make_mistakes("clicks")
    first = operator.checkpoint("clicks")
    assert (
        operator.completed("clicks")[first]
        == f"file://{site.directory}/store/clicks/epochs/{first}"
    )
    saved = operator.savepoint("clicks")
    assert saved.startswith(f"file://{site.directory}/savepoints/savepoint-")
    assert operator.savepoints("clicks")[saved] >= first
    assert operator.checkpoint("clicks") > first  # it has gone on

    site.kill_everything()
    assert operator.state("clicks") == "UNREACHABLE"
    operator.start("clicks")
    assert operator.checkpoint("clicks") > first
    before = operator.completed("clicks")
    path = operator.stop_with_savepoint("clicks")
    assert site.partitions("clicks") == "4"
    assert site.counted() == len(site.rows())  # nothing is written after the savepoint's epoch

    operator.start("more", "-s", path, "-p", "3", "--master", "local[2]")  # through spark-submit
    assert operator.state("more") == "RUNNING"
    assert operator.restored_from("more") == path
    assert operator.checkpoint("more") > max(before)
    assert site.partitions("more") == "3"
    operator.dispose("more", saved)
    assert [p.name for p in (site.directory / "savepoints").iterdir()] == [path.rpartition("/")[2]]
    operator.cancel("more")

    rows = site.rows()
    assert len(rows) > 100
    assert rows == list(range(len(rows)))  # none is lost, none is there twice
    assert site.counted() == len(rows)
    assert any((site.directory / "out-more").glob("*.json"))


def savepoints_of(page: Any) -> dict[str, int]:
    """Return the savepoints on a page of checkpoints, with Flink's fields."""
    found = [one for one in page["history"] if one["is_savepoint"]]
    assert all(one["checkpoint_type"] == "SAVEPOINT" for one in found)
    assert page["latest"]["savepoint"]["external_path"] == found[0]["external_path"]
    assert not page["latest"]["completed"]["is_savepoint"]
    counted = sum(one["status"] == "COMPLETED" for one in page["history"])
    assert page["counts"]["completed"] == counted
    return {one["external_path"]: one["id"] for one in found}


class ByCommandLine:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._seamark = site.seamark

    def start(self, name: str, *options: str) -> None:
        done = self._seamark("run", "-d", *options, "app.py", name)
        (log,) = (line.split()[1] for line in done.stderr.splitlines() if line.startswith("log "))
        output = self._seamark("logs", name).stdout.splitlines()
        assert output[0] == Path(log).read_text().splitlines()[0]
        assert done.stdout.startswith(f"Job {name} has been started with JobID ")
        assert done.stdout.endswith(": RUNNING\n")
        assert f"seamark info {name}" in done.stderr

    def make_mistakes(self, name: str) -> None:
        def refused(code: int, says: str, *arguments: str, **variables: str) -> None:
            done = self._seamark(*arguments, code=code, **variables)
            paragraph = done.stderr.splitlines()[-1]
            assert paragraph.startswith("seamark: ") and says in paragraph, done.stderr
            assert done.stdout == "", done.stdout

        wrong, none = {"SEAMARK_TOKEN": "wrong" * 10}, {"SEAMARK_HOME": "elsewhere"}
        # A token other than the signer of the driver's record is not even sent.
        not_sent, jid = "the token was not sent there", self._info(name)["jid"]
        refused(2, not_sent, "checkpoint", name, **wrong, **none)
        refused(2, not_sent, "cancel", name, **wrong, **none)
        refused(2, f"elsewhere/tokens/{jid}", "stop", name, **none)
        refused(2, "--token-file none cannot be read", "stop", name, "--token-file", "none")
        refused(4, "wait longer with --timeout", "checkpoint", name, "--timeout", "0s")
        ours, theirs = pty.openpty()  # asked only on a terminal
        os.write(ours, b"n\n")
        done = self._seamark("cancel", name, code=4, stdin=theirs)
        os.close(ours)
        os.close(theirs)
        assert f"Cancel job {name} (" in done.stderr and "Not cancelled" in done.stderr
        assert self.state(name) == "RUNNING"
        token = self._site.home / "tokens" / jid
        self._seamark("checkpoint", name, "--token-file", str(token), **none)

    def state(self, name: str) -> str:
        listed = json.loads(self._seamark("list", "--all", "--json").stdout)
        info = self._info({job["name"]: job["jid"] for job in listed}[name][:12])
        assert {job["name"]: job["state"] for job in listed}[name] == info["state"]
        return str(info["state"])

    def restored_from(self, name: str) -> str | None:
        info = self._info(name)
        assert info["guarantee"] == "exactly-once"
        assert [(part["uid"], part["kind"]) for part in info["parts"]] == [
            ("rows", "source"),
            ("digits", "operator"),
            ("files", "sink"),
            ("counts", "sink"),
        ]
        return str(info["restored-from"]["path"]) if info["restored-from"] else None

    def completed(self, name: str) -> dict[int, str]:
        page = json.loads(self._seamark("checkpoints", name, "--json").stdout)
        return {
            one["id"]: one["external_path"]
            for one in page["history"]
            if one["status"] == "COMPLETED" and not one["is_savepoint"]
        }

    def checkpoint(self, name: str) -> int:
        said = self._seamark("checkpoint", name).stdout.split()
        assert [said[0], *said[2:4]] == ["Checkpoint", "completed", "in"]
        assert said[-1].endswith(f"/{name}/epochs/{said[1]}")
        return int(said[1])

    def savepoint(self, name: str) -> str:
        said = self._seamark("savepoint", name).stdout
        assert said.startswith("Savepoint completed. Path: ")
        return said.split("Path: ")[1].strip()

    def savepoints(self, name: str) -> dict[str, int]:
        page = json.loads(self._seamark("checkpoints", name, "--json").stdout)
        return savepoints_of(page)

    def stop_with_savepoint(self, name: str) -> str:
        said = self._seamark("stop", name).stdout  # where its savepoint_dir says
        assert said.startswith("Savepoint completed. Path: ")
        assert self.state(name) == "FINISHED"
        self._seamark("stop", name, code=3)
        path = said.split("Path: ")[1].strip()
        assert next(iter(self.savepoints(name))) == path
        return path

    def dispose(self, name: str, path: str) -> None:
        assert self._seamark("savepoint", "-d", path).stdout == f"Savepoint {path} is disposed.\n"
        self._seamark("savepoint", "-d", path, code=2)

    def cancel(self, name: str) -> None:
        said = self._seamark("cancel", "-s", name).stdout
        assert said.startswith(f"Job {name} is CANCELED. Savepoint completed. Path: ")
        assert self.state(name) == "CANCELED"
        path = said.split("Path: ")[1].strip()
        saved = json.loads(self._seamark("savepoint", "inspect", path, "--json").stdout)
        (source,) = saved["sources"]
        # No epoch comes between the savepoint and the end.
        assert source["offset"]["row"] == len(self._site.rows())
        assert json.loads(self._seamark("list", "--json").stdout) == []

    def _info(self, name: str) -> Any:
        return json.loads(self._seamark("info", name, "--json").stdout)


class ByRest:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._jobs: dict[str, dict[str, Any]] = {}

    def start(self, name: str, *options: str) -> None:
        done = self._site.seamark("run", "-d", "--json", *options, "app.py", name)
        self._jobs[name] = json.loads(done.stdout)

    def make_mistakes(self, name: str) -> None:
        for token in ("", "wrong"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                self._ask("PATCH", f"{self._job(name)}?mode=cancel", token)
        assert self.state(name) == "RUNNING"

    def state(self, name: str) -> str:
        try:
            (job,) = self._ask("GET", f"{self._jobs[name]['rest-url']}/jobs/overview")["jobs"]
        except (urllib.error.URLError, ConnectionError):  # it may be dying
            return "UNREACHABLE"
        assert (job["jid"], job["name"]) == (self._jobs[name]["jid"], name)
        return str(job["state"])

    def restored_from(self, name: str) -> str | None:
        restored = self._ask("GET", f"{self._job(name)}/lineage")["restored"]
        return restored and str(restored["path"])

    def completed(self, name: str) -> dict[int, str]:
        history = self._ask("GET", f"{self._job(name)}/checkpoints")["history"]
        completed = [c for c in history if c["status"] == "COMPLETED" and not c["is_savepoint"]]
        return {c["id"]: c["external_path"] for c in completed}

    def checkpoint(self, name: str) -> int:
        return int(self._perform(name, "checkpoints")["checkpointId"])

    def savepoint(self, name: str) -> str:
        return str(self._perform(name, "savepoints")["location"])

    def savepoints(self, name: str) -> dict[str, int]:
        return savepoints_of(self._ask("GET", f"{self._job(name)}/checkpoints"))

    def stop_with_savepoint(self, name: str) -> str:
        where = {"targetDirectory": f"file://{self._site.directory}/savepoints"}
        done = self._perform(name, "stop", where, answers_at="savepoints")
        wait_until("its end", lambda: self.state(name) == "UNREACHABLE", PATIENCE_S)
        return str(done["location"])

    def dispose(self, name: str, path: str) -> None:
        driver = str(self._jobs[name]["rest-url"])
        url, body = f"{driver}/savepoint-disposal", {"savepoint-path": path}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            self._ask("POST", url, "wrong", body)
        assert self._await(url, self._ask("POST", url, self._token(name), body)) == {}
        again = self._await(url, self._ask("POST", url, self._token(name), body))
        assert "there is no savepoint here" in again["failure-cause"]["stack-trace"]

    def cancel(self, name: str) -> None:
        self._ask("PATCH", f"{self._job(name)}?mode=cancel", self._token(name))
        # The driver answers for some seconds after the end, until somebody knows.
        wait_until("its end", lambda: self.state(name) == "CANCELED", PATIENCE_S)

    def _perform(self, name: str, what: str, body: Any = None, answers_at: str = "") -> Any:
        asked = self._ask("POST", f"{self._job(name)}/{what}", self._token(name), body)
        return self._await(f"{self._job(name)}/{answers_at or what}", asked)

    def _await(self, url: str, asked: Any) -> Any:
        def done() -> Any:
            answer = self._ask("GET", f"{url}/{asked['request-id']}")
            return [answer["operation"]] if answer["status"]["id"] == "COMPLETED" else None

        return wait_until(url, done, PATIENCE_S)[0]

    def _job(self, name: str) -> str:
        return f"{self._jobs[name]['rest-url']}/jobs/{self._jobs[name]['jid']}"

    def _token(self, name: str) -> str:
        return (self._site.home / "tokens" / self._jobs[name]["jid"]).read_text().strip()

    def _ask(self, method: str, url: str, token: str = "", body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as page:
            return json.load(page)


def test_by_the_command_line_alone(site: Site) -> None:
    live_a_day(site, ByCommandLine(site))


@pytest.mark.chaos
def test_by_rest_alone(site: Site) -> None:
    live_a_day(site, ByRest(site))
