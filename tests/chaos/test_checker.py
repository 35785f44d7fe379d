"""The tests' questions to the judge, on histories written by hand: a clean one passes, one planted
anomaly is found. `tests/unit/verify/test_checker.py` has the judge itself."""

from __future__ import annotations

import pytest

from tests.chaos.checker import (
    check_log,
    check_rows,
    check_same,
    check_shown,
    count_rows,
    require_none,
)
from tests.chaos.history import Pair, Produced, Seen, window_counts

PRODUCED = [Produced(f"k{i % 2}", f"v{i}") for i in range(6)]
CLEAN = [Seen(i % 2, i // 2, f"k{i % 2}", f"v{i}") for i in range(6)]


def kinds(anomalies: list) -> dict[str, int]:
    return {kind: count for kind, count in count_rows(anomalies).items() if count}


def test_clean_history_passes() -> None:
    assert check_log("out", PRODUCED, CLEAN, CLEAN[:4]) == []
    assert check_shown("out", CLEAN, CLEAN[:4]) == []
    require_none([])


def test_gaps_in_the_offsets_are_no_anomaly() -> None:
    """Transaction markers and aborted rows take up offsets."""
    spread = [s._replace(offset=s.offset * 7) for s in CLEAN]
    assert check_log("out", PRODUCED, spread, spread) == []


def test_lost_row() -> None:
    final = [s for s in CLEAN if s.value != "v3"]
    assert kinds(check_log("out", PRODUCED, final)) == {"lost": 1}


def test_duplicated_row() -> None:
    final = [*CLEAN, Seen(1, 9, "k1", "v3")]
    assert kinds(check_log("out", PRODUCED, final)) == {"duplicated": 1}


def test_swapped_rows_of_one_key() -> None:
    final = [s._replace(offset={0: 1, 1: 0}.get(s.offset, s.offset)) for s in CLEAN]
    assert kinds(check_log("out", PRODUCED, final)) == {"reordered": 2}, "one for each key"


def test_row_shown_before_it_was_committed() -> None:
    aborted = Seen(0, 5, "k0", "v4")
    final = [s if s.value != "v4" else s._replace(offset=8) for s in CLEAN]
    live = [*CLEAN[:2], aborted]
    assert kinds(check_log("out", PRODUCED, final, live)) == {"aborted read": 1}
    (anomaly,) = check_shown("out", final, live)
    assert str(aborted) in str(anomaly)


def test_row_that_was_never_produced() -> None:
    final = [*CLEAN, Seen(0, 9, "k0", "v99")]
    assert kinds(check_log("out", PRODUCED, final)) == {"phantom": 1}
    assert kinds(check_rows("out", [Pair("k", "1")], [Pair("k", "1"), Pair("k", "2")])) == {
        "phantom": 1
    }


def test_two_sinks_that_differ() -> None:
    rows = [Pair("k", "1"), Pair("k", "2")]
    assert check_same({"a": rows, "b": rows[::-1]}) == []
    anomalies = check_same({"a": rows, "b": [rows[0], rows[0]]})
    assert kinds(anomalies) == {"cross-sink difference": 2}
    assert "a holds other rows" in str(anomalies[0])


def test_rows_count_as_often_as_they_are_expected() -> None:
    row = Pair("k", "1")
    assert check_rows("table", [row, row], [row, row]) == []
    assert kinds(check_rows("table", [row, row], [row])) == {"lost": 1}
    assert kinds(check_rows("table", [row], [row, row])) == {"duplicated": 1}


def test_require_none_names_what_it_found() -> None:
    with pytest.raises(AssertionError, match=r"(?s)anomalies .*'lost': 1.*v5"):
        require_none(check_log("out", PRODUCED, CLEAN[:5]))


def test_window_counts() -> None:
    rows = [
        Produced("a", "0,0"),
        Produced("a", "1,9"),
        Produced("b", "2,10"),
        Produced("a", "3,20"),
    ]
    assert window_counts(rows, 10, open_after_ms=20) == [Pair("a", "0,2"), Pair("b", "10,1")]
