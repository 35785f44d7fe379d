"""Where partitions go when a savepoint's offsets are changed; the brokers' answers are given here.
The real broker's: tests/integration/jobs/test_offsets.py.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint.spark_files import not_its_own
from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model.errors import DamagedCheckpointError, SavepointError, UserError
from seamark.operations.offsets import parse_moment, parse_partitions, parse_topics, read_options
from seamark.run.kafka_topics import Subscription
from seamark.savepoints.edit.offsets import (
    Change,
    Move,
    Partition,
    choose,
    consequences,
    moves,
    offset_after,
    problems,
    write_copy,
)
from seamark.savepoints.record import SavepointRecord, Source, read_savepoint, write_savepoint
from seamark.savepoints.restore.from_savepoint import TopicChanges, topic_changes
from seamark.savepoints.state.copies import copier
from tests.unit.savepoints.test_record import a_savepoint

CLICKS = Source("clicks", 0, {"clicks": {"0": 10, "1": 20}})
ORDERS = Source("orders", 1, {"orders": {"0": 5}, "returns": {"0": 7}})
FILES = Source("files", 2, {"logOffset": 3})


def at(**offsets: int) -> Any:
    """A position: the partitions of these topics are all at one offset each."""

    def position(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return {p: offsets[p[0]] for p in partitions if p[0] in offsets}

    return position


def nothing(topic: str) -> Sequence[int]:
    raise AssertionError(topic)


def plain(found: Sequence[Move]) -> list[tuple[str, int, int | None, int | None]]:
    return [(m.topic, m.partition, m.old, m.new) for m in found]


def test_a_rewind_never_goes_forward_and_a_position_does() -> None:
    back = Change(position=at(clicks=15), only_back=True)
    assert plain(moves(CLICKS, back, nothing)) == [("clicks", 0, 10, 10), ("clicks", 1, 20, 15)]
    both = moves(CLICKS, Change(position=at(clicks=15)), {"clicks": [0, 1, 2]}.__getitem__)
    assert plain(both) == [
        ("clicks", 0, 10, 15),
        ("clicks", 1, 20, 15),
        ("clicks", 2, None, 15),  # it has come since: Spark would read it from its start
    ]


def test_another_name_keeps_the_offsets_unless_a_position_is_given() -> None:
    renamed = moves(CLICKS, Change(topics={"clicks": "views"}), nothing)
    gone = [("clicks", 0, 10, None), ("clicks", 1, 20, None)]
    assert plain(renamed) == [("views", 0, None, 10), ("views", 1, None, 20), *gone]
    assert offset_after(renamed, "clicks") == {"views": {"0": 10, "1": 20}}
    begun = moves(
        CLICKS, Change(topics={"clicks": "views"}, position=at(views=2), only_back=True),
        {"views": [0, 1, 2]}.__getitem__,
    )  # fmt: skip
    assert plain(begun)[:3] == [("views", n, None, 2) for n in range(3)]
    with pytest.raises(SavepointError, match="two topics have become one"):
        moves(ORDERS, Change(topics={"orders": "returns"}), nothing)
    for only_back in (True, False):
        misspelled = Change(topics={"clicks": "veiws"}, position=at(), only_back=only_back)
        with pytest.raises(SavepointError, match="the brokers have no topic 'veiws'"):
            moves(CLICKS, misspelled, {"veiws": []}.__getitem__)


def test_each_partition_goes_to_the_source_that_reads_it() -> None:
    sources = [CLICKS, ORDERS, FILES]
    change = Change({("returns", 0): 1, ("clicks", 1): 2})
    found = choose(sources, "savepoint s", None, change)
    assert [(s.uid, c.partitions) for s, c in found] == [
        ("clicks", {("clicks", 1): 2}),
        ("orders", {("returns", 0): 1}),
    ]
    with pytest.raises(SavepointError, match="read by 0 of its sources; say which one"):
        choose(sources, "savepoint s", None, Change({("new", 0): 1}))
    ((source, part),) = choose(sources, "savepoint s", "orders", Change({("new", 0): 1}))
    assert offset_after(moves(source, part, nothing), "orders") == {
        **ORDERS.offset,
        "new": {"0": 1},
    }
    with pytest.raises(SavepointError, match="no offsets of topic 'no'; it has clicks, orders, re"):
        choose(sources, "savepoint s", None, Change(topics={"no": "new"}))


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        ({"logOffset": 3}, "reads files: its offset is the number of an entry"),
        ({"row": 7, "started_ms": 1}, "which is not Kafka's"),
        (None, "has no offset"),
    ],
)
def test_what_is_not_kafkas_cannot_be_changed(offset: Any, why: str) -> None:
    source = Source("s", 0, offset)
    for uid in ("s", None):
        with pytest.raises(SavepointError, match=why):
            choose([source], "savepoint p", uid, Change({("t", 0): 1}))
    with pytest.raises(SavepointError, match="no source 'other'; it has 's'"):
        choose([source], "savepoint p", "other", Change())


def test_what_becomes_of_the_rows() -> None:
    back = Move("clicks", "clicks", 0, 10, 4, 2, 30)
    on = Move("clicks", "clicks", 1, 10, 13, 2, 30)
    stays = Move("clicks", "clicks", 2, 10, 10, 2, 30)
    said = consequences([back, on, stays], 0)
    assert [sentence.split(":")[0] for sentence in said] == [
        "Up to 6 rows are read again",
        "Up to 3 rows are never read",
    ]
    assert "older than the watermark (2026-09-21T14:13:20Z)" in consequences(
        [back], 1_790_000_000_000
    )[0]  # fmt: skip
    assert "watermark (51700344384000000 ms since 1970)" in consequences(
        [back], 51_700_344_384_000_000
    )[0], "seconds taken for milliseconds give a watermark beyond Python's years"  # fmt: skip
    assert consequences([stays], 0) == [
        "No row is read again or left out: the guarantee stays as it was."
    ]
    assert problems([back, on, stays]) == []
    assert problems([replace(on, log_end=12), replace(back, log_start=None)]) == [
        "clicks:1=13: its log holds the offsets 2 to 12",
        "clicks:0=4: the brokers have no such partition",
    ]
    (gone,) = consequences([replace(stays, log_start=11)], 0)
    assert gone.startswith("clicks:2: the log no longer holds")


def test_what_the_command_line_gives() -> None:
    assert parse_partitions(["a:b:1=7"]) == {("a:b", 1): 7}
    for wrong in ("a=1", "a:1", "a:x=1", "a:1=-2", ":1=1"):
        with pytest.raises(UserError, match="TOPIC:PARTITION=OFFSET"):
            parse_partitions([wrong])
    assert parse_topics(["a=b"]) == {"a": "b"}
    with pytest.raises(UserError, match="OLD=NEW"):
        parse_topics(["a=a"])
    assert parse_moment("12") == 12
    assert parse_moment("1970-01-01T01:00:00.012+01:00") == 12
    # Kafka takes -1 for the end of a log: before 1970 is before its first row.
    assert parse_moment("1969-12-31T23:59:59.999Z") == 0
    with pytest.raises(UserError, match="or milliseconds since 1970"):
        parse_moment("9" * 20)  # no client takes it
    with pytest.raises(UserError, match="with its time zone"):
        parse_moment("1970-01-01T01:00:00")


def test_a_file_of_options_is_read_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# for the brokers\nsasl.password = a=b \n\n")
    assert read_options(file) == {"sasl.password": "a=b"}
    file.write_text("secret")
    with pytest.raises(UserError, match=r"line 1 is no name=value$"):
        read_options(file)


def reads(*topics: str) -> Subscription:
    return Subscription(topics)


def changes(sources: list[Source], reading: dict[str, Subscription]) -> TopicChanges:
    return topic_changes("/s", sources, reading, dict.fromkeys(reading, "kafka"))


def test_topics_that_are_no_longer_read() -> None:
    found = changes([CLICKS, ORDERS, FILES], {"clicks": reads("clicks", "more")})
    assert (found.problems, found.offsets, found.begun) == ((), {}, frozenset())
    assert found.added == {"clicks": ("more",)}
    found = changes([ORDERS], {"orders": reads("returns", "bought")})
    assert found.offsets == {"orders": {"returns": {"0": 7}}}
    assert found.begun == frozenset()
    (problem,) = found.problems
    assert "'orders' is at offsets of topic 'orders'" in problem
    assert "seamark offsets set --topic orders=bought /s;" in problem
    found = changes([CLICKS], {"clicks": reads("views")})
    assert (found.begun, found.added) == (frozenset({"clicks"}), {})


def test_a_source_that_reads_kafka_now_does_not_go_on_from_another_systems_offset() -> None:
    found = changes([FILES, CLICKS], {"files": reads("clicks")})
    (problem,) = found.problems
    assert problem.startswith(
        "source 'files' is at the offset {\"logOffset\": 3}, from which 'kafka', its kind in the "
        "program, cannot go on; give it a uid of its own"
    )
    assert (found.begun, found.offsets, found.added) == (frozenset({"files"}), {}, {})
    unread = changes([Source("files", 2, None)], {"files": reads("clicks")})
    assert (unread.problems, unread.begun) == ((), frozenset())


@pytest.mark.parametrize(
    ("offset", "before", "now", "fits"),
    [
        (5, "", "FileSource", False),
        (5, "FileSource", "FileSource", False),
        (5, "", "rate", True),
        (5, "rate", "socket", False),
        (5, "rate", "rate", True),
        (5, "rate", "", True),
        ({"logOffset": 3}, "", "FileSource", True),
        ({"logOffset": 3}, "", "a-source-of-ones-own", True),  # it may use a class of Spark's
        ({"t": {"0": 1}}, "", "FileSource", False),
        ({"t": {"0": 1}}, "", "a-source-of-ones-own", True),
        ({"t": {"0": 1}}, "", "kafka", True),
        ({}, "", "kafka", True),
        (None, "rate", "kafka", True),
    ],
)
def test_an_offset_fits_its_own_kind_of_source(
    offset: Any, before: str, now: str, fits: bool
) -> None:
    clause = not_its_own("a", offset, before, now)
    assert (clause == "") is fits
    assert ("of 'rate'" in clause) is (before == "rate" and not fits)


def test_a_jobs_own_offsets_have_their_sources_names(tmp_path: Path) -> None:
    from seamark.savepoints.take.checkpoint import sources_of_job

    files = LocalDirectory(tmp_path)
    store = CheckpointStore(files, LocalDirectory(tmp_path / "spark"))
    with pytest.raises(SavepointError, match="no complete checkpoint"):
        sources_of_job(store)
    files.create("spark/commits/9", b"v1\n{}")
    files.create("spark/commits/10", b"v1\n{}")
    files.create("spark/offsets/10", b'v1\n{}\n{"t":{"0":4}}\n{"t":{"0":4}}\n7')
    assert [(s.uid, s.offset) for s in sources_of_job(store)] == [
        ("source-0", {"t": {"0": 4}}),
        ("source-1", {"t": {"0": 4}}),
        ("source-2", 7),
    ]


ROWS = "state/0/default/part-0.parquet"


def with_files_of(files: LocalDirectory) -> SavepointRecord:
    """Write a savepoint with its files there, with rows of more than a copier's piece."""
    data = {
        ROWS: random.Random(1).randbytes(3_000_001),
        "spark/offsets/7": b'v1\n{}\n{"clicks":{"0":5}}\n-',
    }
    for path, text in data.items():
        files.create(path, text)
    listed = {path: (len(text), zlib.crc32(text)) for path, text in data.items()}
    savepoint = replace(a_savepoint(files), files=listed)
    write_savepoint(files, savepoint)
    return savepoint


def local(source: LocalDirectory, target: LocalDirectory) -> Any:
    def spark() -> Any:
        raise AssertionError("no Spark is needed here")

    return copier(source, target, spark)


def test_a_copy_has_other_offsets_and_the_rest_of_the_savepoint(tmp_path: Path) -> None:
    here, there = LocalDirectory(tmp_path / "here"), LocalDirectory(tmp_path / "there")
    savepoint = with_files_of(here)
    before = {path: here.read(path) for path in [*savepoint.files, "savepoint.json"]}
    copied = write_copy(
        savepoint, {"clicks": {"clicks": {"0": 2}}}, here, there, local(here, there)
    )
    assert copied.offsets_set and not savepoint.offsets_set
    copy = read_savepoint(there)
    clicks, rates = savepoint.sources
    assert copy.sources == (replace(clicks, offset={"clicks": {"0": 2}}), rates)
    assert there.read(ROWS) == before[ROWS]
    for path, (size, crc) in copy.files.items():
        assert (size, crc) == (len(there.read(path)), zlib.crc32(there.read(path)))
    assert {path: here.read(path) for path in before} == before, "the savepoint stays"
    with pytest.raises(SavepointError, match="not empty"):
        write_copy(savepoint, {}, here, there, local(here, there))


def test_a_copy_of_what_is_damaged_is_no_savepoint(tmp_path: Path) -> None:
    here, there = LocalDirectory(tmp_path / "here"), LocalDirectory(tmp_path / "there")
    savepoint = with_files_of(here)
    with (tmp_path / "here" / ROWS).open("r+b") as file:
        file.write(b"x")
    with pytest.raises(DamagedCheckpointError, match=f"{ROWS} is missing, or not as it was"):
        write_copy(savepoint, {}, here, there, local(here, there))
    with pytest.raises(SavepointError, match="not a whole savepoint"):
        read_savepoint(there)
