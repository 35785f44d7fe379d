"""Optional parts of sinks and sources: a look at the real system for ``explain --preflight``.

A look changes nothing there: it opens no transaction, fences nobody and makes no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from seamark.contracts.sink import SinkContext
from seamark.model.findings import Finding


@runtime_checkable
class InspectedSink(Protocol):
    """A sink that can look at its system."""

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """Ask the real system and return every finding, without a secret; change nothing.

        Called in the driver's process, maybe while the job runs elsewhere; returns within tens of
        seconds, with a finding if the system does not answer. `context.generation` is 0.
        """
        ...


@runtime_checkable
class InspectedSource(Protocol):
    """A source that can look at its system."""

    def inspect_source(self, uid: str, jvm: Any, tolerated_downtime_s: float) -> Sequence[Finding]:
        """Ask the real system and return every finding; change nothing.

        `jvm` is Spark's, by py4j, with Spark's own client of the system. The job may be down for
        `tolerated_downtime_s`, and must then find its rows. Returns within tens of seconds.
        """
        ...
