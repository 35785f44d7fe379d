"""Ids: made, taken apart again, capped, and never shared. Pure."""

from __future__ import annotations

import pytest

from seamark.sinks.kafka.transactional_id import (
    TransactionalId,
    capped,
    new_worker,
    owner,
    parse,
)

WORKER = new_worker()


@pytest.mark.parametrize(
    "prefix", ["clicks", "a-b-g1-c", "-", "über", "x-g7-" + "0" * 12 + "-1", " "]
)
@pytest.mark.parametrize("job_id", ["0123456789abcdef", "a-b-c-d-e", "", "j", "jöb/1"])
def test_what_is_made_is_parsed_back(prefix: str, job_id: str) -> None:
    made = TransactionalId(prefix, owner(job_id, "to-kafka"), 17, WORKER, 3)
    assert parse(str(made)) == made


@pytest.mark.parametrize(
    "text",
    ["", "orders-0", "my-app-g1-2", "p-job12345-0d67f553a102-gX-100e7abddc3c-1", "-g", "g-g"],
)
def test_ids_of_others_are_not_taken_for_ours(text: str) -> None:
    assert parse(text) is None


def test_owners_differ_by_the_whole_job_id_and_by_sink() -> None:
    one = owner("0123456789abcdef", "a")
    assert one != owner("0123456789abcdee", "a")
    assert one != owner("0123456789abcdef", "b")
    assert owner("job1", "1sink") != owner("job11", "sink")
    assert one == owner("0123456789abcdef", "a")


def test_a_prefix_and_uid_of_40_kb_give_a_short_id_that_is_still_unique() -> None:
    long = "p" * 40_000
    one = TransactionalId(capped(long), owner("job", "u" * 40_000), 1, WORKER, 1)
    other = TransactionalId(capped(long + "x"), owner("job", "u" * 40_001), 1, WORKER, 1)
    assert len(str(one)) < 200
    assert capped(long) != capped(long + "x")
    assert one.owner != other.owner
    assert parse(str(one)) == one


def test_workers_differ() -> None:
    assert len({new_worker() for _ in range(1000)}) == 1000
