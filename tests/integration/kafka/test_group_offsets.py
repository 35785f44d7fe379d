"""How: a job in a driver of its own reads a topic of a real broker. Its consumer group is asked for
as lag tools ask, while an epoch is stored and undecided, after SIGKILL, and after somebody has set
the group's offsets to nonsense; the job's committed and logged rows are counted in the end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from seamark.dev.kafka import LocalKafka
from seamark.sources.kafka import KafkaSource
from tests.chaos.driver import Driver, wait_until

PROGRAM = """
import json, logging, sys
import seamark as sm

given = json.loads(sys.argv[1])
job = sm.Job("lag", sm.CheckpointConfig(storage="store", interval="200ms"))


def read(topic):
    source = sm.KafkaSource(given["servers"], topic, group_id=f"group-of-{topic}")
    return job.source(source, uid=topic).selectExpr("CAST(value AS STRING) AS v")


# `rows` stands twice in Spark's plan, and in its offset log, before `others`.
rows, others = map(read, given["topics"])
job.sink(rows, sm.FileSink("out", format="json"), "files")
job.sink(rows.where("v < 5"), sm.FileSink("few", format="json"), "few")
job.sink(others, sm.FileSink("others", format="json"), "others")
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    job.run()
"""


class Home:
    """One job on two topics, of two partitions and of one, and their groups."""

    def __init__(self, directory: Path, servers: str, topic: str, other: str) -> None:
        (directory / "app.py").write_text(PROGRAM)
        self.directory, self.topic, self.other = directory, topic, other
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.producer = Producer({"bootstrap.servers": servers})
        self.drivers: list[Driver] = []

    def produce(self, values: range) -> None:
        for value in values:
            self.producer.produce(self.topic, str(value), partition=value % 2)
        self.producer.produce(self.other, str(values[0]))
        assert self.producer.flush(30) == 0

    def start(self, failpoint: str | None = None) -> Driver:
        given = {"servers": self.servers, "topics": [self.topic, self.other]}
        log = self.directory / f"driver-{len(self.drivers)}.log"
        self.drivers.append(Driver(self.directory / "app.py", given, log, failpoint))
        return self.drivers[-1]

    def offsets(self, topic: str = "") -> dict[int, int]:
        """The group's offsets of a topic, by partition."""
        asked = ConsumerGroupTopicPartitions(f"group-of-{topic or self.topic}")
        (answer,) = self.admin.list_consumer_group_offsets([asked]).values()
        try:
            return {p.partition: p.offset for p in answer.result(300).topic_partitions}
        except KafkaException as error:
            # A new broker makes, or loads, its topic of offsets (14, 15, 16). librdkafka calls an
            # answer that it could not parse not retriable.
            if not (error.args[0].retriable() or error.args[0].code() in (14, 15, 16)):
                raise
            return {}

    def set_offsets(self, offsets: dict[int, int]) -> None:
        parts = [TopicPartition(self.topic, p, offset) for p, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(f"group-of-{self.topic}", parts)
        for answer in self.admin.alter_consumer_group_offsets([asked]).values():
            assert all(part.error is None for part in answer.result(300).topic_partitions)

    def committed(self, generation: int) -> list[int]:
        """The epochs committed by one driver, by the checkpoint's own records."""
        records = (self.directory / "store/lag/epochs").glob("*/committed.json")
        bodies = [json.loads(record.read_text())["body"] for record in records]
        return sorted(body["epoch"] for body in bodies if body["generation"] == generation)

    def written(self) -> Counter[int]:
        lines = (
            line
            for file in (self.directory / "out").glob("[!._]*")
            for line in file.read_text().splitlines()
        )
        return Counter(int(json.loads(line)["v"]) for line in lines)


@pytest.fixture
def home(tmp_path: Path, kafka: LocalKafka, topic: Callable[..., str]) -> Iterator[Home]:
    home = Home(tmp_path, kafka.bootstrap_servers, topic(2), topic(1))
    yield home
    for driver in home.drivers:
        driver.kill_tree()


def test_a_group_has_the_offsets_of_completed_checkpoints_and_is_never_believed(home: Home) -> None:
    home.produce(range(20))
    first = home.start("prepared:2")
    wait_until("the first checkpoint's offsets", lambda: home.offsets() == {0: 10, 1: 10}, 240)
    home.produce(range(20, 30))
    first.die()
    assert home.offsets() == {0: 10, 1: 10}, "the second checkpoint was stored, not decided"
    assert home.offsets(home.other) == {0: 1}
    assert sum(home.written().values()) == 20

    home.set_offsets({0: 0, 1: 7_000_000})
    second = home.start()
    wait_until("the end's offsets", lambda: home.offsets() == {0: 15, 1: 15}, 240)
    second.stop(timeout_s=60)
    assert home.offsets(home.other) == {0: 2}
    assert home.written() == Counter(range(30))
    for generation, driver in enumerate((first, second), start=1):
        lines = re.findall(r"^seamark\.epochs epoch=(\d+) status=COMPLETED ", driver.text(), re.M)
        assert list(map(int, lines)) == home.committed(generation), "one line an epoch"


def test_without_a_group_nothing_is_committed() -> None:
    assert KafkaSource("localhost:1", "clicks").create_offset_committer(jvm=None) is None
