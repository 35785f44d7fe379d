"""The rules on a `KafkaSink`'s settings and its job's, pure; `preflight.py` asks the brokers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seamark.contracts.sink import SinkContext
from seamark.model.findings import Finding, FindingCode

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink


def no_prefix(sink: str, prefix: object) -> Finding:
    """Return the finding of a sink for exactly-once without a prefix."""
    return Finding(
        FindingCode.KF001,
        sink,
        f"delivery_guarantee is 'exactly-once' but transactional_id_prefix is {prefix!r}",
        "give a prefix that no other job on this cluster uses, or take "
        "delivery_guarantee='at-least-once'",
    )


def timeout_too_short(sink: KafkaSink, context: SinkContext) -> Iterator[Finding]:
    """The broker may abort a transaction before its epoch is committed. A transaction must outlive
    the longest possible wait for its commit; with a spool, one checkpoint interval."""
    needed = {"checkpoint interval": context.checkpoint_interval_s}
    if not sink.spool:
        needed["timeout"] = context.checkpoint_timeout_s
        needed["restart delay"] = context.restart_delay_s
    found_s, needed_s = sink.transaction_timeout_s, sum(needed.values())
    if not math.isinf(needed_s) and found_s <= needed_s:
        parts = " + ".join(f"{name} {value:g}s" for name, value in needed.items())
        yield Finding(
            FindingCode.KF004,
            f"sink `{context.sink_uid}`",
            f"transaction timeout {found_s:g}s is not above {parts} = {needed_s:g}s, and the "
            "broker would abort the rows of an epoch that is decided later",
            f"raise transaction_timeout above {needed_s:g}s (and the broker's "
            "transaction.max.timeout.ms, 15min by default), lower CheckpointConfig timeout, or "
            "give KafkaSink spool=True",
        )
