"""The pure parts of benchmarks/peers: what goes in, what must come out, and the report."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from benchmarks.peers import nexmark, report, work


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


def test_the_judge_sees_a_missing_and_a_doubled_row(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    batch.write_text("".join(json.dumps([None, text]) + "\n" for text in ("a", "b")))
    rows = [(None, b"a"), (None, b"b")]
    assert nexmark.judge("q0", list(rows), batch) == "equal"
    assert nexmark.judge("q0", list(rows[:1]), batch).startswith("1 of 2 missing, 0 extra")
    assert nexmark.judge("q0", [*rows, rows[0]], batch).startswith("0 of 2 missing, 1 extra")


def test_of_an_updated_key_the_last_row_counts(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    batch.write_text(json.dumps(["k", "new"]) + "\n")
    assert nexmark.judge("q17", [(b"k", b"old"), (b"k", b"new")], batch) == "equal"


def test_a_spread_leaves_out_the_warm_up() -> None:
    records = [{"round": r, "x": x} for r, x in ((-1, 9), (0, 1), (1, 3), (2, 2))]
    assert report.spread(records, "x") == "2 (1..3)"


def test_a_table_escapes_its_cells() -> None:
    assert report.table(["a"], [["x|y"]]) == "| a |\n|---|\n| x\\|y |"
    assert report.table(["a"], []) == ""
