"""Files into Redis by both modes: the transient jump back of upserts, seen by a reader; and a job
killed within its commits, and under it the server.

The reader asks for two keys all the time and keeps each changed value.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.driver import wait_until
from tests.chaos.outputs import RedisOutput
from tests.chaos.scenario import Scenario, SinksScenario
from tests.servers.needed import needed
from tests.servers.redis import RedisServer

LAST = 100


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with needed("Redis"):
        made = RedisServer()
    with made:
        yield made


class KeyReader(threading.Thread):
    """`seen`: the values shown by each key, in order."""

    def __init__(self, server: RedisServer, *keys: str) -> None:
        super().__init__(daemon=True)
        self._client = server.client()
        self._end = threading.Event()
        self.seen: dict[str, list[int]] = {key: [] for key in keys}

    def run(self) -> None:
        while not self._end.wait(0.001):
            for key, found in zip(self.seen, self._client.mget(list(self.seen)), strict=True):
                if found is not None and self.seen[key][-1:] != [int(found)]:
                    self.seen[key].append(int(found))

    def close(self) -> None:
        self._end.set()
        self.join()


class OneFile(Scenario):
    program = "app_redis.py"
    job = "redis"

    def __init__(self, directory: Path, server: RedisServer) -> None:
        incoming = directory / "incoming"
        incoming.mkdir()
        lines = [json.dumps({"key": "k", "value": str(n)}) + "\n" for n in range(1, LAST + 1)]
        (incoming / "rows.json").write_text("".join(lines))
        options = {"input": str(incoming), "url": server.url(), "slow_s": 0.01}
        super().__init__(directory, options, lambda rows: None, 1.0)


def test_a_reader_sees_the_jump_back_of_upserts_and_none_of_stages(
    server: RedisServer, tmp_path: Path
) -> None:
    """Killed when the epoch's rows are written and not decided; then it runs again."""
    reader = KeyReader(server, "upsert:k", "staged:k")
    reader.start()
    with OneFile(tmp_path, server) as scenario:
        scenario.die_at("pre-committed")
        upserted = reader.seen["upsert:k"]
        wait_until("the reader has seen the last row", lambda: upserted[-1:] == [LAST], 10)
        assert reader.seen["staged:k"] == [], "nothing is shown before the decision"
        before = len(upserted)
        driver = scenario.start()
        driver.wait_for_epochs(1)
        assert driver.returncode is None
        driver.stop()
    reader.close()
    first, again = upserted[:before], upserted[before:]
    assert len(first) > 10
    assert first == sorted(first)  # on
    assert again[0] < LAST // 2  # back
    assert again == sorted(again)  # and on again
    assert again[-1] == LAST
    staged = reader.seen["staged:k"]
    assert staged == sorted(staged)
    assert staged[-1] == LAST


def test_killed_within_its_commits_and_the_server_under_it(
    server: RedisServer, tmp_path: Path
) -> None:
    outputs = [RedisOutput(server, "upsert", "strings"), RedisOutput(server, "staged", "hashes")]
    with SinksScenario(tmp_path, outputs) as scenario:
        driver = scenario.die_at_each(["block-applied:2", "prepared:2"])
        driver.wait_for_epochs(2)
        server.restart()
        scenario.finish(scenario.outlive(driver))
        scenario.require_settled()
