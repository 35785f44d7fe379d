"""The examples with Kafka: each is killed with -9 as its README says, and counted by a reader."""

from __future__ import annotations

import difflib
import os
import time
from collections import Counter
from collections.abc import Callable

import pytest

from seamark.dev.kafka import LocalKafka
from seamark.dev.topics import make_topics
from seamark.spark.jars import spark_kafka_jars
from seamark.spark.spark_versions import HAS_READ_LIMITS
from tests.chaos.driver import wait_until
from tests.examples.example import Example
from tests.servers.postgres import PostgresServer

Make = Callable[..., Example]


def test_kafka_pass_through(example: Make, kafka: LocalKafka) -> None:
    servers = kafka.bootstrap_servers
    here = example("kafka-pass-through", KAFKA=servers)
    make_topics(servers, {"originals": 1, "copies": 1})
    at = f"--bootstrap-servers {servers}"
    here.type("seamark topic produce originals --rate 1000 -n 300", more=at)
    tail = "seamark topic tail copies --from-beginning"
    committed = here.known(f"{tail} > committed.txt", at)
    uncommitted = here.known(f"{tail} --isolation-level read_uncommitted > uncommitted.txt", at)

    def lines() -> tuple[int, int]:
        return tuple(len(here.said(f"{n}.txt").splitlines()) for n in ("committed", "uncommitted"))

    with here.running(committed, "tail.log"), here.running(uncommitted, "tail.log"):
        here.die("SEAMARK_FAILPOINT=prepared:2 python app.py")
        wait_until("100 and 200 rows", lambda: lines() == (100, 200), 60)
        here.type("python app.py")
        wait_until("300 and 400 rows", lambda: lines() == (300, 400), 60)
        time.sleep(1)  # for a row that comes again
        assert lines() == (300, 400)


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
def test_orders_kafka_postgres(example: Make, kafka: LocalKafka, postgres: PostgresServer) -> None:
    servers = kafka.bootstrap_servers
    here = example("orders-kafka-postgres", KAFKA=servers, POSTGRES=postgres.url())
    make_topics(servers, {"to-ship": 1})
    tail = "seamark topic tail to-ship --from-beginning > shipped.txt"

    def shipped() -> int:
        return len(here.said("shipped.txt").splitlines())

    show = "wc -l < shipped.txt && python show.py"
    with here.running(here.known(tail, f"--bootstrap-servers {servers}"), "tail.log"):
        here.die("SEAMARK_FAILPOINT=sink-committed:3 python app.py")
        wait_until("40 rows", lambda: shipped() == 40, 60)
        assert here.type(show).split() == ["40", "20", "20"]
        here.type("python app.py")
        wait_until("60 rows", lambda: shipped() == 60, 60)
        assert here.type(show).split() == ["60", "60", "60"]
    keys = Counter(line.split("\t")[0] for line in here.said("shipped.txt").splitlines())
    assert keys == Counter(map(str, range(60)))


def test_debezium(example: Make, kafka: LocalKafka, postgres: PostgresServer) -> None:
    servers, topic = kafka.bootstrap_servers, "shop.public.orders"
    here = example("debezium", KAFKA=servers, POSTGRES=postgres.url())
    make_topics(servers, {topic: 1})
    here.type(
        f"seamark topic produce {topic} --json < changes.jsonl",
        more=f"--bootstrap-servers {servers}",
    )
    here.die("SEAMARK_FAILPOINT=decided:2 python app.py")
    assert here.type("python show.py").splitlines() == ["1 pen 1.75", "2 ink 7.00", "3 paper 4.20"]
    here.type("python app.py")
    assert here.type("python show.py").splitlines() == ["1 pen 1.75", "3 paper 4.00", "4 glue 2.00"]


def test_moved_query(example: Make, kafka: LocalKafka) -> None:
    servers = kafka.bootstrap_servers
    jars = ",".join(map(str, spark_kafka_jars()))  # as the README's --packages fetches them
    options = os.environ["PYSPARK_SUBMIT_ARGS"].replace("pyspark-shell", f"--jars {jars}")
    here = example("moved-query", KAFKA=servers, PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell")
    make_topics(servers, {"pages": 1})
    plain, moved = ((here.directory / name).read_text() for name in ("plain.py", "app.py"))
    changed = [line for line in difflib.ndiff(plain.splitlines(), moved.splitlines())
               if line[0] in "+-" and '"""' not in line and line[2:].strip()]  # fmt: skip
    assert changed == [
        "+ import seamark as sm",
        "- writer = pages.writeStream",
        "+ writer = sm.write_stream(pages)",
    ]
    here.type("""mkdir in && for n in 1 2 3; do echo '{"page": "home"}' > in/$n.json; done""")
    here.type("python plain.py")
    here.type("""for n in 4 5 6; do echo '{"page": "home"}' > in/$n.json; done""")
    here.die("SEAMARK_FAILPOINT=prepared:2 python app.py")
    here.type("python app.py")
    tail = "seamark topic tail pages --from-beginning -n 6"
    found = here.type(tail, more=f"--bootstrap-servers {servers}").splitlines()
    assert found == [f"home\t{number}" for number in range(1, 7)]
