"""How: one day of an operator's life, once by the command line alone and once by REST alone.

A job is started in the background, looked at, told to take a checkpoint, killed by SIGKILL with its
whole tree, found unreachable, started again, stopped; another job, through spark-submit, goes on
from its last checkpoint and is cancelled. In the end the rows of both outputs together are there
once each. Every step is a process of its own, or an HTTP request (the start of a driver excepted).
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
import tidemark as tm

name = sys.argv[1]
job = tm.Job(name, tm.CheckpointConfig(interval="500ms"))
rows = job.source(tm.DatagenSource(rows_per_second=100), uid="rows")
job.sink(rows.select("row"), tm.FileSink("out-" + name, format="json"), uid="files")
if __name__ == "__main__":
    job.run()
"""
PATIENCE_S = 240


class Site:
    """A directory with a program, and everything that runs for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mark = uuid.uuid4().hex
        (directory / "app.py").write_text(PROGRAM)
        (directory / "tidemark.toml").write_text('[checkpoint]\nstorage = "store"\n')
        self.home = directory / "home"
        self._scratch = tempfile.TemporaryDirectory(prefix="tm-")

    def tidemark(
        self, *arguments: str, code: int = 0, stdin: int = subprocess.DEVNULL, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line; its exit code must be `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "tidemark", *arguments],
            cwd=self.directory,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={
                **{k: v for k, v in os.environ.items() if k != "TIDEMARK_CONFIG"},
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
                "SPARK_LOCAL_DIRS": self._scratch.name,
                "TIDEMARK_HOME": str(self.home),
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
        """Return the rows that both jobs have made visible."""
        files = (f for f in self.directory.glob("out-*/*.json") if not f.name.startswith("."))
        lines = (line for file in files for line in file.read_text().splitlines())
        return sorted(json.loads(line)["row"] for line in lines)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


class Operator(Protocol):
    """What an operator does, by one means or another."""

    def start(self, name: str, *options: str) -> None:
        """Run the program as a job of this name; return when it is RUNNING."""

    def make_mistakes(self, name: str) -> None:
        """Do what must be refused, and change nothing."""

    def state(self, name: str) -> str: ...

    def restored_from(self, name: str) -> str | None: ...

    def completed(self, name: str) -> dict[int, str]:
        """Return the path of each completed checkpoint."""

    def checkpoint(self, name: str) -> int:
        """Take one now, and return its id when it is completed."""

    def stop(self, name: str) -> None: ...

    def cancel(self, name: str) -> None: ...


def live_a_day(site: Site, operator: Operator) -> None:
    operator.start("clicks")
    assert operator.state("clicks") == "RUNNING"
    assert operator.restored_from("clicks") is None
    operator.make_mistakes("clicks")
    first = operator.checkpoint("clicks")
    assert (
        operator.completed("clicks")[first]
        == f"file://{site.directory}/store/clicks/epochs/{first}"
    )

    site.kill_everything()
    assert operator.state("clicks") == "UNREACHABLE"
    operator.start("clicks")
    assert operator.checkpoint("clicks") > first
    before = operator.completed("clicks")
    operator.stop("clicks")
    path = f"file://{site.directory}/store/clicks"  # its newest checkpoint
    assert max(before) > first

    operator.start("more", "-s", path, "--master", "local[2]")  # through spark-submit
    assert operator.state("more") == "RUNNING"
    assert operator.restored_from("more") == path
    assert operator.checkpoint("more") > max(before)
    operator.cancel("more")

    rows = site.rows()
    assert len(rows) > 100
    assert rows == list(range(len(rows)))  # none is lost, none is there twice
    assert any((site.directory / "out-more").glob("*.json"))


class ByCommandLine:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._tidemark = site.tidemark

    def start(self, name: str, *options: str) -> None:
        done = self._tidemark("run", "-d", *options, "app.py", name)
        assert done.stdout.startswith(f"Job {name} has been started with JobID ")
        assert done.stdout.endswith(": RUNNING\n")
        assert f"tidemark info {name}" in done.stderr

    def make_mistakes(self, name: str) -> None:
        def refused(code: int, says: str, *arguments: str, **variables: str) -> None:
            done = self._tidemark(*arguments, code=code, **variables)
            paragraph = done.stderr.splitlines()[-1]
            assert paragraph.startswith("tidemark: ") and says in paragraph, done.stderr
            assert done.stdout == "", done.stdout

        wrong, none = {"TIDEMARK_TOKEN": "wrong"}, {"TIDEMARK_HOME": "elsewhere"}
        refused(2, "401", "checkpoint", name, **wrong)
        refused(2, "401", "cancel", name, **wrong)
        refused(2, f"elsewhere/tokens/{self._info(name)['jid']}", "stop", name, **none)
        refused(2, "--token-file none cannot be read", "stop", name, "--token-file", "none")
        refused(4, "wait longer with --timeout", "checkpoint", name, "--timeout", "0s")
        ours, theirs = pty.openpty()  # asked only on a terminal
        os.write(ours, b"n\n")
        done = self._tidemark("cancel", name, code=4, stdin=theirs)
        os.close(ours)
        os.close(theirs)
        assert f"Cancel job {name} (" in done.stderr and "Not cancelled" in done.stderr
        assert self.state(name) == "RUNNING"
        token = self._site.home / "tokens" / self._info(name)["jid"]
        self._tidemark("checkpoint", name, "--token-file", str(token), **none)

    def state(self, name: str) -> str:
        listed = json.loads(self._tidemark("list", "--all", "--json").stdout)
        info = self._info({job["name"]: job["jid"] for job in listed}[name][:12])
        assert {job["name"]: job["state"] for job in listed}[name] == info["state"]
        return str(info["state"])

    def restored_from(self, name: str) -> str | None:
        info = self._info(name)
        assert info["guarantee"] == "exactly-once"
        assert [(part["uid"], part["kind"]) for part in info["parts"]] == [
            ("rows", "source"),
            ("files", "sink"),
        ]
        return str(info["restored-from"]["path"]) if info["restored-from"] else None

    def completed(self, name: str) -> dict[int, str]:
        page = json.loads(self._tidemark("checkpoints", name, "--json").stdout)
        return {
            one["id"]: one["external_path"]
            for one in page["history"]
            if one["status"] == "COMPLETED"
        }

    def checkpoint(self, name: str) -> int:
        said = self._tidemark("checkpoint", name).stdout.split()
        assert [said[0], *said[2:4]] == ["Checkpoint", "completed", "in"]
        assert said[-1].endswith(f"/{name}/epochs/{said[1]}")
        return int(said[1])

    def stop(self, name: str) -> None:
        said = self._tidemark("stop", name).stdout
        assert said.startswith(f"Job {name} is FINISHED. Committed last: checkpoint ")
        committed = said.split("checkpoint ")[1].split(".")[0]
        assert committed == str(max(self.completed(name)))
        assert self.state(name) == "FINISHED"
        self._tidemark("stop", name, code=3)

    def cancel(self, name: str) -> None:
        assert self._tidemark("cancel", name).stdout == f"Job {name} is CANCELED.\n"
        assert self.state(name) == "CANCELED"
        assert json.loads(self._tidemark("list", "--json").stdout) == []

    def _info(self, name: str) -> Any:
        return json.loads(self._tidemark("info", name, "--json").stdout)


class ByRest:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._jobs: dict[str, dict[str, Any]] = {}

    def start(self, name: str, *options: str) -> None:
        done = self._site.tidemark("run", "-d", "--json", *options, "app.py", name)
        self._jobs[name] = json.loads(done.stdout)

    def make_mistakes(self, name: str) -> None:
        for token in ("", "wrong"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                self._ask("PATCH", f"{self._job(name)}?mode=cancel", token)
        assert self.state(name) == "RUNNING"

    def state(self, name: str) -> str:
        try:
            (job,) = self._ask("GET", f"{self._jobs[name]['rest-url']}/jobs/overview")["jobs"]
        except urllib.error.URLError:
            return "UNREACHABLE"
        assert (job["jid"], job["name"]) == (self._jobs[name]["jid"], name)
        return str(job["state"])

    def restored_from(self, name: str) -> str | None:
        restored = self._ask("GET", f"{self._job(name)}/lineage")["restored"]
        return restored and str(restored["path"])

    def completed(self, name: str) -> dict[int, str]:
        history = self._ask("GET", f"{self._job(name)}/checkpoints")["history"]
        return {c["id"]: c["external_path"] for c in history if c["status"] == "COMPLETED"}

    def checkpoint(self, name: str) -> int:
        return int(self._perform(name, "checkpoints")["checkpointId"])

    def stop(self, name: str) -> None:
        assert self._perform(name, "stop") == {"state": "FINISHED"}
        wait_until("its end", lambda: self.state(name) == "UNREACHABLE", PATIENCE_S)

    def cancel(self, name: str) -> None:
        self._ask("PATCH", f"{self._job(name)}?mode=cancel", self._token(name))
        # The driver answers for some seconds after the end, until somebody knows.
        wait_until("its end", lambda: self.state(name) == "CANCELED", PATIENCE_S)

    def _perform(self, name: str, what: str) -> Any:
        url = f"{self._job(name)}/{what}"
        trigger = self._ask("POST", url, self._token(name))["request-id"]

        def done() -> Any:
            answer = self._ask("GET", f"{url}/{trigger}")
            return answer if answer["status"]["id"] == "COMPLETED" else None

        return wait_until(what, done, PATIENCE_S)["operation"]

    def _job(self, name: str) -> str:
        return f"{self._jobs[name]['rest-url']}/jobs/{self._jobs[name]['jid']}"

    def _token(self, name: str) -> str:
        return (self._site.home / "tokens" / self._jobs[name]["jid"]).read_text().strip()

    def _ask(self, method: str, url: str, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as page:
            return json.load(page)


def test_by_the_command_line_alone(site: Site) -> None:
    live_a_day(site, ByCommandLine(site))


def test_by_rest_alone(site: Site) -> None:
    live_a_day(site, ByRest(site))
