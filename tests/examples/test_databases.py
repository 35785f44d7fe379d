"""The examples with Redis, MySQL and PostgreSQL: each is killed with -9 as its README says, and
counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seamark.spark.spark_versions import HAS_READ_LIMITS
from tests.examples.example import Example
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
Make = Callable[..., Example]


def test_redis_idempotent(example: Make, redis: RedisServer) -> None:
    here = example("redis-idempotent", REDIS=redis.url())
    watch = here.known("python watch.py > values.txt")
    with here.running(watch, "watch.log") as watching:
        here.die("SEAMARK_FAILPOINT=pre-committed:2 python app.py")
        here.wait(lambda: values(here)[-1:] == [20], "watch.log", watching)
        first = values(here)
        here.type("python app.py")
        assert watching.wait(60) == 0
    again = values(here)[len(first) :]
    assert first == sorted(first)
    assert 11 <= again[0] < 20, "no jump back was seen"
    assert again == sorted(again)
    assert again[-1] == 30
    assert redis.client().get("counter") == "30"


def values(here: Example) -> list[int]:
    return [int(text) for text in here.said("values.txt").split()]


def test_mysql_upsert(example: Make, mariadb: MariaDBServer) -> None:
    here = example("mysql-upsert", MYSQL=mariadb.url())
    here.die("SEAMARK_FAILPOINT=decided:2 python app.py")
    assert here.type("python show.py").split() == ["20", "200"]
    here.type("python app.py")
    assert here.type("python show.py").split() == ["20", "600"]


def test_foreach_batch_merge(example: Make, postgres: PostgresServer) -> None:
    here = example("foreach-batch-merge", POSTGRES=postgres.url())
    here.die("SEAMARK_FAILPOINT=rows-sent:2 python app.py")
    assert here.type("python show.py").split() == ["400"]
    here.type("python app.py")
    assert here.type("python show.py").split() == ["600"]
