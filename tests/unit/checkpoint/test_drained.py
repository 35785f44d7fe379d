"""The watermark of a drained job in Spark's logs, and its removal."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from seamark.checkpoint.drained import before, is_drained, is_raised, raised, undrained

NOW_MS = 1_800_000_000_000
NEVER_MS = int(datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp() * 1000)


@pytest.mark.parametrize("watermark_ms", [0, 1, NOW_MS, 3_299_999_999_999])
def test_a_raised_watermark_holds_the_one_of_before(watermark_ms: int) -> None:
    assert is_raised(raised(watermark_ms))
    assert before(raised(watermark_ms)) == watermark_ms
    assert datetime.fromtimestamp(raised(watermark_ms) / 1000, timezone.utc).year < 9999


@pytest.mark.parametrize("watermark_ms", [0, NOW_MS, NEVER_MS, NEVER_MS - 86_400_000])
def test_no_other_watermark_is_taken_for_one(watermark_ms: int) -> None:
    """Open-ended rows have 9999-12-31, and carry the watermark there."""
    assert not is_raised(watermark_ms)
    assert before(watermark_ms) == watermark_ms


def test_entries_of_both_logs_are_taken_back() -> None:
    offsets = '{"batchWatermarkMs":%d,"batchTimestampMs":5,"conf":{"a":"b"}}\n{"logOffset":3}\n-'
    drained = f"v1\n{offsets % raised(NOW_MS)}".encode()
    assert is_drained(drained)
    assert undrained(drained) == f"v1\n{offsets % NOW_MS}".encode()
    assert undrained(undrained(drained)) == undrained(drained)
    commit = json.dumps({"nextBatchWatermarkMs": raised(NOW_MS)})
    assert json.loads(undrained(f"v1\n{commit}".encode()).split(b"\n")[1]) == {
        "nextBatchWatermarkMs": NOW_MS
    }
    assert undrained(b"v1\n{}") == b"v1\n{}"
