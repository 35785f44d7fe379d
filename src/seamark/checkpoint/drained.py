"""The mark of a drained job in Spark's logs: its watermark stands near the end of time.

`run/drain.py` raises it so. A job must not go on from there: all later rows would be late. A
restore from it goes on with the former watermark, contained in the raised one.
"""

import json

from seamark.checkpoint.spark_files import with_metadata

DRAINED_MS = 250_000_000_000_000
"""A time in the year 9892, in milliseconds since 1970. A drained job's watermark is the sum of this
and its former watermark, and so below the year 9999, where timestamps end."""
_SPAN_MS = 3_300_000_000_000  # times before 2074; 9999-12-31, which stands for "never", is beyond
_KEYS = ("batchWatermarkMs", "nextBatchWatermarkMs")


def raised(watermark_ms: int) -> int:
    """Return the watermark that drains a job with `watermark_ms`."""
    return DRAINED_MS + min(max(watermark_ms, 0), _SPAN_MS - 1)


def is_raised(watermark_ms: int) -> bool:
    """Return whether a watermark is a drained job's."""
    return DRAINED_MS <= watermark_ms < DRAINED_MS + _SPAN_MS


def before(watermark_ms: int) -> int:
    """Return the job's watermark before the drain, if it was drained."""
    return watermark_ms - DRAINED_MS if is_raised(watermark_ms) else watermark_ms


def is_drained(entry: bytes) -> bool:
    """Return whether an entry of Spark's offset or commit log is a drained job's."""
    body = _metadata(entry)
    return any(is_raised(int(body.get(key) or 0)) for key in _KEYS)


def undrained(entry: bytes) -> bytes:
    """Return an entry of Spark's offset or commit log with the watermark before the drain;
    unchanged if the job is not drained."""
    if not is_drained(entry):
        return entry
    body = _metadata(entry)
    for key in _KEYS:
        if key in body:
            body[key] = before(int(body[key]))
    return with_metadata(entry.decode(), body).encode()


def _metadata(entry: bytes) -> dict[str, int]:
    try:
        metadata = json.loads(entry.decode().split("\n")[1])
    except (ValueError, IndexError):
        return {}
    return metadata if isinstance(metadata, dict) else {}
