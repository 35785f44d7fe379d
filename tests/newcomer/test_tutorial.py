"""docs/tutorial.md as typed, with other ports; the reader's kills come while rows are on their
way. Five minutes long, for so long do the clicks come."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from seamark.dev.java_server import free_ports
from tests.newcomer.conftest import Newcomer

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
BLOCKS = PAGE.split("```")[1::2]
JOB, COUNT, CHANGED = (b.removeprefix("python\n") for b in BLOCKS if b.startswith("python\n"))
CLICKS = 6000


def typed(beginning: str) -> str:
    """Return the one line of the page's shell blocks that begins so, without a redirection."""
    lines = {line for block in BLOCKS for line in block.splitlines() if line.startswith(beginning)}
    (line,) = lines
    return re.sub(r" *>.*", "", line)


def with_ports(text: str, kafka: int, postgres: int) -> str:
    return text.replace("9092", str(kafka)).replace("5432", str(postgres))


@pytest.mark.timeout(1800)
def test_two_kills_a_savepoint_and_a_drain_lose_and_double_nothing(newcomer: Newcomer) -> None:
    ports = free_ports(2)
    at = f"--bootstrap-servers localhost:{ports[0]}"
    here = newcomer.directory
    app = with_ports(JOB, *ports)
    (here / "app.py").write_text(app)
    (here / "count.py").write_text(with_ports(COUNT, *ports))

    def counted() -> list[tuple[str, int, int, int]]:
        done = newcomer.run("python", "count.py")
        assert done.returncode == 0, done.stderr
        found = re.findall(r"(\w+): (\d+) windows, (\d+) doubled, (\d+) clicks", done.stdout)
        assert [name for name, *_ in found] == ["Kafka", "PostgreSQL"]
        return [(name, int(w), int(d), int(c)) for name, w, d, c in found]

    def rows() -> int:
        return (here / "kafka.txt").read_text().count("}\n")

    with contextlib.ExitStack() as stack:
        for command, log in (
            (typed("seamark dev kafka"), "kafka.log"),
            (typed("seamark dev postgres"), "postgres.log"),
        ):
            server = stack.enter_context(newcomer.running(with_ports(command, *ports), log))
            # PostgreSQL outlives a kill -9 of the command, so Ctrl-C comes first.
            stack.callback(server.wait, 60)
            stack.callback(server.send_signal, signal.SIGINT)
            port = ports[0] if "kafka" in log else ports[1]
            newcomer.wait(
                lambda log=log, port=port: re.search(rf":{port}[/\n]", newcomer.said(log)),
                log, server,
            )  # fmt: skip
        tail = f"{typed('seamark topic tail')} {at} > kafka.txt"
        reader = stack.enter_context(newcomer.running(tail, "tail.log"))
        newcomer.wait(lambda: "read_committed" in newcomer.said("tail.log"), "tail.log", reader)
        explained = newcomer.run(*typed("seamark explain").split())
        assert explained.returncode == 0, explained.stdout + explained.stderr
        assert "exactly-once" in explained.stdout

        produce = typed("seamark topic produce")
        assert f"-n {CLICKS}" in produce
        clicks = stack.enter_context(newcomer.running(f"{produce} {at}", "clicks.log"))

        for kill in range(2):
            before = rows()
            with newcomer.running(typed("seamark run -v app.py"), "app.log") as driver:
                newcomer.wait(
                    lambda before=before: rows() > before or clicks.poll() is not None,
                    "app.log", driver,
                )  # fmt: skip
                time.sleep(kill)  # another place in an epoch
                os.kill(driver.pid, signal.SIGKILL)  # as the reader: the driver alone
                driver.wait()
                for _, _, doubled, _ in counted():
                    assert doubled == 0
        listed = newcomer.run("seamark", "list", "-a")
        assert "UNREACHABLE" in listed.stdout, listed.stdout

        with newcomer.running(typed("seamark run -v app.py"), "app.log") as driver:
            newcomer.wait(lambda: "RUNNING" in _info(newcomer), "app.log", driver)
            stopped = newcomer.run(*typed("seamark stop -p").split())
            assert stopped.returncode == 0, stopped.stderr + newcomer.said("app.log")
            assert driver.wait(60) == 0
        assert "StoppedError" not in newcomer.said("app.log")  # an epoch that was held back
        (path,) = re.findall(r"Savepoint completed. Path: (\S+)", stopped.stdout)

        old = app[app.index("job.sink(\n") : app.index("job.sink(rows")]
        (here / "app.py").write_text(app.replace(old, with_ports(CHANGED, *ports)))
        plan = newcomer.run(*typed("seamark run -s PATH").replace("PATH", path).split())
        assert plan.returncode == 0, plan.stdout + plan.stderr
        again = typed("seamark run -v -s PATH").replace("PATH", path)
        with newcomer.running(again, "again.log") as driver:
            # Twenty a second at most: five minutes on a quick machine, begun two minutes ago.
            assert clicks.wait(900) == 0, newcomer.said("clicks.log")
            assert f"{CLICKS} rows are in" in newcomer.said("clicks.log")
            newcomer.wait(lambda: "RUNNING" in _info(newcomer), "again.log", driver)
            taken = newcomer.run(*typed("seamark checkpoint").split())
            assert taken.returncode == 0, taken.stderr + newcomer.said("again.log")
            drained = newcomer.run(*typed("seamark stop --drain").split())
            assert drained.returncode == 0, drained.stderr + newcomer.said("again.log")
            assert driver.wait(60) == 0
        assert "StoppedError" not in newcomer.said("again.log")
        newcomer.wait(lambda: sum(c for *_, c in counted()) >= 2 * CLICKS, "again.log")
        for name, windows, doubled, clicks_in in counted():
            assert (doubled, clicks_in) == (0, CLICKS), name
            assert windows > 20
    assert '"version":2' in (here / "kafka.txt").read_text()


def _info(newcomer: Newcomer) -> str:
    return newcomer.run("seamark", "info", "clicks").stdout
