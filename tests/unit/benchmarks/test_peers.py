"""The pure parts of benchmarks/peers: what goes in, what must come out, and the report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers import nexmark, nexmark_flink, report, work


def test_a_seed_gives_the_same_events() -> None:
    assert list(nexmark.records(500)) == list(nexmark.records(500))
    assert list(nexmark.events(500)) != list(nexmark.events(500, seed=1))


def test_one_person_three_auctions_forty_six_bids() -> None:
    kinds = Counter(event["kind"] for event in nexmark.events(5000))
    assert kinds == {"person": 100, "auction": 300, "bid": 4600}


def test_the_expected_counts_are_those_of_the_records() -> None:
    rows = 24_004
    counted: Counter[tuple[str, int]] = Counter()
    for _, key, value in work.records(rows, sentinels=False):
        counted[key.decode(), int(value[:10]) // work.WINDOW_MS * work.WINDOW_MS] += 1
    texts = {
        f"{key}|{work.window_text(work.FIRST_MS + start)}|{count}".encode()
        for (key, start), count in counted.items()
    }
    assert work.expected_counts(rows) == texts


Judged = Callable[[str, list[Any], list[Any]], str]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """The judge's verdict on a query's committed rows, beside those of a batch run."""

    def verdict(query: str, rows: list[Any], got: list[Any]) -> str:
        batch = tmp_path / "batch"
        batch.write_text("".join(json.dumps(row) + "\n" for row in rows))
        committed = [(k and k.encode(), v and v.encode()) for k, v in got]
        return nexmark.judge(query, committed, batch)

    return verdict


def test_the_judge_sees_a_missing_and_a_doubled_row(judged: Judged) -> None:
    rows = [(None, '{"auction":1}'), (None, '{"auction":2}')]
    assert judged("q0", rows, rows) == "equal"
    assert judged("q0", rows, rows[:1]).startswith("1 of 2 missing, 0 extra")
    assert judged("q0", rows, [*rows, rows[0]]).startswith("0 of 2 missing, 1 extra")


def test_of_an_updated_key_the_last_row_counts(judged: Judged) -> None:
    old, new = '{"auction":1,"total_bids":1}', '{"auction":1,"total_bids":2}'
    assert judged("q17", [("k", new)], [("k", old), ("k", new)]) == "equal"
    assert judged("q17", [("k", new)], [("k", new), ("k", old)]).startswith("1 of 1 missing")


def test_a_deleted_key_does_not_count(judged: Judged) -> None:
    row = '{"auction":1}'
    assert (
        judged("q17", [("k", row)], [("l", row), ("l", None), ("k", None), ("k", row)]) == "equal"
    )
    assert judged("q17", [("k", row)], [("k", row), ("k", None)]).startswith("1 of 1 missing")


def test_the_engines_forms_of_a_value_are_one(judged: Judged) -> None:
    spark = (
        '{"price":90800.000,"at":"2023-11-14T22:13:20.100Z","l":{"at":"2023-11-14T22:13:20.000Z"}}'
    )
    flink = '{"l":{"at":"2023-11-14 22:13:20"},"price":90800,"at":"2023-11-14 22:13:20.1"}'
    assert judged("q1", [(None, spark)], [(None, flink)]) == "equal"
    for changed in (flink.replace("90800", "90801"), flink.replace(":20.1", ":20.01")):
        assert judged("q1", [(None, spark)], [(None, changed)]).startswith("1 of 1 missing")


def test_flink_has_each_query_with_its_key() -> None:
    assert set(nexmark_flink.QUERIES) == set(nexmark.QUERIES)
    assert set(nexmark_flink.UPDATED) == {q for q, form in nexmark.QUERIES.items() if form.key}


def test_a_spread_leaves_out_the_warm_up() -> None:
    records = [{"round": r, "x": x} for r, x in ((-1, 9), (0, 1), (1, 3), (2, 2))]
    assert report.spread(records, "x") == "2 (1..3)"


def test_a_table_escapes_its_cells() -> None:
    assert report.table(["a"], [["x|y"]]) == "| a |\n|---|\n| x\\|y |"
    assert report.table(["a"], []) == ""
