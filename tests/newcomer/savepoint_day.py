"""A job that is stopped with a savepoint, changed, and restored on four state partitions; each verb
as typed, on Kafka.

The job writes each user's number of clicks whenever it has changed. So the counts that a
`read_committed` reader sees of a user rise: one that comes twice was doubled, and the last ones
add up to the clicks that were produced unless some were lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections import defaultdict
from pathlib import Path

from seamark.dev.java_server import free_ports
from tests.newcomer.conftest import PATIENCE_S, Newcomer

APP = """
import seamark as sm

job = sm.Job("{name}", sm.CheckpointConfig(interval="1s"), output_mode="update")
source = sm.KafkaSource("{servers}", topics=["clicks"], starting_offsets="earliest")
clicks = job.source(source, uid="clicks")
counts = clicks.selectExpr("string(key) AS user").groupBy("user").count()
job.uid(counts, "per-user")
job.sink(
    counts.selectExpr("user AS key", "to_json(struct(count, {version} AS version)) AS value"),
    sm.KafkaSink("{servers}", topic="per-user", transactional_id_prefix="{name}"),
    uid="to-kafka",
)

if __name__ == "__main__":
    job.run()
"""
CLICKS = 2000


def savepoint_day(newcomer: Newcomer, restored: str, kills: tuple[int, ...] = ()) -> None:
    """Go through it; assert that nothing is lost or doubled.

    restored: the name of the changed program's job.
    kills: kill -9 of a restore once it has made so many files, and the same command again.
    """
    (port,) = free_ports(1)
    servers = f"localhost:{port}"
    at = ("--bootstrap-servers", servers)
    produce = ("seamark", "topic", "produce", "clicks", "--rate", 500, "-n", CLICKS, *at)
    app = newcomer.directory / "app.py"
    with contextlib.ExitStack() as stack:
        server = f"seamark dev kafka --port {port} --topic clicks:4 --topic per-user"
        broker = stack.enter_context(newcomer.running(server, "broker.log"))
        newcomer.wait(lambda: f":{port}\n" in newcomer.said("broker.log"), "broker.log", broker)
        tail = f"seamark topic tail per-user --from-beginning {' '.join(at)}"
        stack.enter_context(newcomer.running(tail, "rows.log"))

        app.write_text(APP.format(name="clicks", version=1, servers=servers))
        assert newcomer.run(*produce).returncode == 0
        with newcomer.running("seamark run app.py", "first.log") as first:
            newcomer.wait(lambda: rows_seen(newcomer), "first.log", first)
            savepoints = newcomer.directory / "savepoints"
            stopped = newcomer.run("seamark", "stop", "-p", savepoints, "clicks")
            assert stopped.returncode == 0, stopped.stderr + newcomer.said("first.log")
            assert first.wait(60) == 0
        (path,) = re.findall(r"Path: (\S+)", stopped.stdout)

        app.write_text(APP.format(name=restored, version=2, servers=servers))
        command = f"seamark run -s {path} -p 4 app.py"
        if kills:
            assert newcomer.run(*produce).returncode == 0
        for files in kills:
            killed_restore(newcomer, command, files)
        with newcomer.running(command, "second.log") as second:
            if not kills:
                info = ("seamark", "info", restored)
                newcomer.wait(lambda: "RUNNING" in newcomer.run(*info).stdout, "second.log", second)
                taken = newcomer.run("seamark", "checkpoint", restored)
                assert taken.returncode == 0, taken.stderr
                assert "No row is new since checkpoint" in taken.stdout
                assert newcomer.run(*produce).returncode == 0
            newcomer.wait(lambda: total(newcomer) >= 2 * CLICKS, "second.log", second)
            time.sleep(2)  # for a row that comes again
            assert newcomer.run("seamark", "stop", restored).returncode == 0
            assert second.wait(60) == 0
    seen = rows_seen(newcomer)
    assert total(newcomer) == 2 * CLICKS, "lost or doubled"
    for user, counts in seen.items():
        assert counts == sorted(set(counts)), f"{user}: {counts}"
    assert '"version":2' in newcomer.said("rows.log")


def killed_restore(newcomer: Newcomer, command: str, files: int) -> None:
    storage = Path(newcomer.environment["SEAMARK_HOME"]) / "checkpoints"

    def made() -> int:
        return sum(len(names) for _, _, names in os.walk(storage))

    before, deadline = made(), time.monotonic() + PATIENCE_S
    with newcomer.running(command, "killed.log") as driver:
        while made() < before + files:
            assert driver.poll() is None, newcomer.said("killed.log")
            assert time.monotonic() < deadline, newcomer.said("killed.log")
            time.sleep(0.002)
        os.killpg(driver.pid, signal.SIGKILL)


def rows_seen(newcomer: Newcomer) -> dict[str, list[int]]:
    """Return each user's counts, in the order of the topic."""
    found = defaultdict(list)
    for line in newcomer.said("rows.log").splitlines():
        user, tab, value = line.partition("\t")
        if tab and value.endswith("}"):  # a line that is whole
            found[user].append(json.loads(value)["count"])
    return found


def total(newcomer: Newcomer) -> int:
    return sum(max(counts) for counts in rows_seen(newcomer).values())
