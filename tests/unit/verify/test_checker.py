"""The checker on histories written by hand: each anomaly is found, its fine neighbour passes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from seamark.verify.checker import Checker
from seamark.verify.history import Anomaly, Kind, Read, count_rows, log_places

KEYS = 2
EPOCH = 4
"""Rows 0 to 3 are epoch 0, rows 4 to 7 epoch 1, and so on."""


def array(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def history(count: int = 8, ordered: bool = True) -> Checker:
    """Rows of two keys by turns, four an epoch, epoch n decided at second 10 + n."""
    checker = Checker(ordered)
    numbers = np.arange(count)
    checker.produced(numbers % KEYS)
    checker.acknowledge(numbers)
    checker.place(numbers, numbers // EPOCH)
    for epoch in range(count // EPOCH):
        checker.decided(epoch, 10.0 + epoch)
    return checker


def table(*numbers: int, at: float = 20.0, sink: str = "table", reader: str = "table") -> Read:
    return Read(sink, reader, at, at + 0.1, array(*numbers), atomic=True)


def log(*rows: tuple[int, int, int], at: float = 20.0, whole: bool = False) -> Read:
    """Rows of a log: partition, offset, number."""
    partitions, offsets, numbers = zip(*rows, strict=True)
    places = log_places(partitions, offsets)
    reader = "final" if whole else "following"
    return Read("topic", reader, at, at + 0.1, array(*numbers), places, whole)


IN_ORDER = [(n % KEYS, n // KEYS, n) for n in range(8)]


def found(anomalies: list[Anomaly]) -> dict[str, int]:
    return {kind: count for kind, count in count_rows(anomalies).items() if count}


def finished(checker: Checker, *finals: Read) -> dict[str, int]:
    checker.finish({read.sink: read for read in finals})
    return found(checker.anomalies)


def test_a_clean_history_passes() -> None:
    checker = history()
    assert checker.read(log(*IN_ORDER[:4], at=15)) == []
    assert checker.read(log(*IN_ORDER[4:], at=16)) == []
    assert checker.read(table(0, 1, 2, 3, at=15)) == []
    final = log(*IN_ORDER, whole=True), table(*range(8))
    assert finished(checker, *final) == {}


def test_lost() -> None:
    checker = history()
    assert finished(checker, table(*range(7))) == {"lost": 1}
    assert checker.anomalies[0].rows == (7,)


def test_a_row_without_acknowledgement_may_be_there_or_not() -> None:
    for rows in (range(8), range(9)):
        checker = history()
        checker.produced(array(0))
        assert finished(checker, table(*rows)) == {}


def test_duplicated_in_a_table_and_in_a_log() -> None:
    checker = history()
    assert found(checker.read(table(0, 1, 1, 2, 3))) == {"duplicated": 1}
    assert checker.read(table(0, 1, 1, 2, 3)) == [], "told once"
    checker = history()
    checker.read(log(*IN_ORDER))
    assert found(checker.read(log((1, 9, 3)))) == {"duplicated": 1}


def test_a_row_in_two_reads_of_a_table_is_no_duplicate() -> None:
    checker = history()
    assert checker.read(table(0, 1, 2, 3)) == checker.read(table(0, 1, 2, 3)) == []


def test_aborted_read_of_a_row_gone_in_the_end() -> None:
    checker = history(12)
    checker.read(log((0, 0, 0), (0, 7, 8)))
    rows = [(n % KEYS, 10 + n, n) for n in range(12)]
    rows[0] = 0, 0, 0
    assert finished(checker, log(*rows, whole=True)) == {"aborted read": 1}
    assert checker.anomalies[0].rows == (8,)


def test_aborted_read_before_the_decision() -> None:
    checker = history()
    checker.read(table(0, 1, 2, 3, at=9.5))
    assert found(checker.undecided()) == {"aborted read": 4}
    assert "before epoch 0 was decided" in str(checker.anomalies[0])
    assert checker.undecided() == [], "told once"


def test_a_row_shown_at_its_decision_is_fine() -> None:
    checker = history()
    checker.read(table(0, 1, 2, 3, at=9.95))  # the read ends after the decision
    assert checker.undecided() == []


def test_phantom() -> None:
    assert found(history().read(table(0, 99))) == {"phantom": 1}
    checker = history()
    assert found(checker.read(table(0, -1, -1))) == {"phantom": 2}
    assert checker.read(table(0, -1, -1)) == [], "told once"


def test_reordered() -> None:
    swapped = [(0, 0, 2), (0, 1, 0), (1, 0, 1), (1, 1, 3)]
    checker = history()
    assert found(checker.read(log(*swapped))) == {"reordered": 1}
    assert checker.anomalies[0].rows == (0,)


def test_reordered_across_two_reads_of_one_reader() -> None:
    checker = history()
    assert checker.read(log((0, 0, 0), (0, 1, 4))) == []
    assert found(checker.read(log((0, 2, 2), (0, 3, 6)))) == {"reordered": 1}


def test_rows_of_two_keys_and_gaps_in_offsets_are_no_disorder() -> None:
    one_partition = [(0, 0, 1), (0, 5, 0), (0, 17, 3), (0, 18, 2)]
    assert history().read(log(*one_partition)) == []


def test_a_stream_without_order_may_have_any() -> None:
    assert history(ordered=False).read(log((0, 0, 2), (0, 1, 0))) == []


def test_a_repeated_row_is_a_duplicate_and_not_disorder() -> None:
    checker = history()
    checker.read(log((0, 0, 0), (0, 1, 2)))
    assert found(checker.read(log((0, 2, 0)))) == {"duplicated": 1}


def test_a_committed_row_is_hidden_from_later_reads() -> None:
    for committed_s, kinds in ((20, {"hidden": 4}), (50, {})):
        checker = history()
        checker.committed(array(0, 1, 2, 3), committed_s)
        checker.read(log(*IN_ORDER[:2], at=90))  # a follower shows what is new alone
        assert found(checker.read(log(*IN_ORDER[4:], at=90, whole=True))) == kinds
    checker = history()
    checker.committed(array(0, 1, 2, 3), 20)
    checker.committed(array(0, 4), 50)
    found_ = checker.read(log((0, 0, 4), at=90, whole=True))
    assert [a.rows for a in found_ if a.kind is Kind.HIDDEN] == [(0, 1, 2, 3)], "the first time"


def test_nothing_hides_a_committed_row_of_a_table() -> None:
    for committed_s, kinds in ((88, {"hidden": 1}), (89.5, {})):
        checker = history(4)
        checker.committed(array(0, 1, 2, 3), committed_s)
        assert found(checker.read(table(0, 1, 2, at=90))) == kinds


def test_torn_epoch() -> None:
    checker = history()
    assert found(checker.read(table(0, 1, 2, 4))) == {"torn epoch": 1}
    assert checker.anomalies[0].rows == (3,)
    assert "epoch 1 is shown, epoch 0 is not complete" in str(checker.anomalies[0])


def test_the_newest_epoch_may_be_shown_in_part() -> None:
    """Its transactions are committed one after the other."""
    assert history().read(table(0, 1, 2, 3, 5)) == []


def test_a_log_may_be_read_in_part() -> None:
    assert history().read(log((0, 0, 0), (0, 1, 2), (0, 2, 4))) == []


def test_non_monotonic_read() -> None:
    checker = history()
    checker.read(table(0, 1, 2, 3, at=20))
    assert found(checker.read(table(0, 1, 2, at=21))) == {"non-monotonic read": 1}
    assert finished(checker, table(*range(8))) == {"non-monotonic read": 1}, "it came back"


def test_two_readers_may_be_at_different_places() -> None:
    checker = history()
    checker.read(table(0, 1, 2, 3, at=20, reader="first"))
    assert checker.read(table(0, 1, 2, at=20, reader="second")) == []


def test_a_log_that_goes_back_is_non_monotonic() -> None:
    checker = history()
    checker.read(log((0, 5, 0)))
    assert found(checker.read(log((0, 5, 2)))) == {"non-monotonic read": 1}


def test_cross_sink_difference_while_the_job_runs() -> None:
    checker = history()
    checker.read(table(*range(5), sink="first", at=20))
    assert found(checker.read(table(0, 1, 2, sink="second", at=21))) == {"cross-sink difference": 1}
    assert "first had shown epoch 1, epoch 0 is not complete" in str(checker.anomalies[0])


def test_sinks_become_visible_one_after_the_other() -> None:
    checker = history()
    checker.read(table(*range(4), sink="first", at=20))
    assert checker.read(table(sink="second", at=21)) == []
    checker = history()
    checker.read(table(*range(8), sink="first", at=20))
    assert checker.read(table(0, sink="second", at=20.05)) == [], "both reads at the same time"


def test_cross_sink_difference_in_the_end() -> None:
    """Rows without acknowledgement: neither sink has lost anything, and yet they differ."""
    checker = history()
    checker.produced(array(0))
    first, second = table(*range(9), sink="first"), table(*range(8), sink="second")
    assert finished(checker, first, second) == {"cross-sink difference": 1}


@pytest.mark.parametrize(("times", "kind"), [(2, "lost"), (4, "duplicated")])
def test_a_count_that_is_wrong(times: int, kind: str) -> None:
    checker = Checker(ordered=False)
    checker.produced(array(0, 1))
    checker.acknowledge(array(0, 1), times=array(3, 3))
    right = Read("counts", "final", 20, 21, array(0, 1), times=array(3, 3))
    assert finished(checker, right) == {}
    wrong = Read("counts", "final", 22, 23, array(0, 1), times=array(3, times))
    assert finished(checker, wrong) == {kind: 1}
    assert f"row 1 counts {times}, not 3" in str(checker.anomalies[0])


def test_a_million_rows_take_seconds() -> None:
    count = 1_000_000
    checker = Checker()
    numbers = np.arange(count)
    checker.produced(numbers % 20)
    checker.acknowledge(numbers)
    checker.place(numbers, numbers // 1000)
    begun = time.process_time()
    for end in range(250_000, count + 1, 250_000):
        part = numbers[end - 250_000 : end]
        checker.read(
            Read("topic", "following", end, end + 1, part, log_places(part % 20 % 4, part), False)
        )
        checker.read(Read("table", "table", end, end + 1, numbers[:end], atomic=True))
    final = Read("topic", "final", count, count + 1, numbers, log_places(numbers % 4, numbers))
    table_ = Read("table", "final", count, count + 1, numbers, atomic=True)
    assert checker.finish({"topic": final, "table": table_}) == []
    assert time.process_time() - begun < 20
