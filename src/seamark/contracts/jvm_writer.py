"""Sinks whose rows Spark's JVM may write itself: an optional part of the sink contract.

In real time a row that goes to Python goes alone. `run/jvm_writer.py` asks the sinks of a job
without Python steps, and its Java classes write what `CommittingWriter` would: the same bytes, in
transactions with the same names. The rest of the protocol sees no difference.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

C_co = TypeVar("C_co", covariant=True)


@runtime_checkable
class JvmWrittenSink(Protocol[C_co]):
    """A sink of records in one topic of Kafka."""

    def jvm_writer(self, job_id: str, sink_uid: str, generation: int) -> Mapping[str, Any] | None:
        """Return what `spark/java/KafkaTasks.java` reads of this sink in a run, as JSON values;
        None if its rows need Python. Called in the driver, after `Committer.preflight`."""

    def jvm_committable(self, transaction: Mapping[str, Any]) -> C_co:
        """Return the committable of a transaction flushed by these classes: its
        ``transactional_id``, ``producer_id``, ``producer_epoch``, and ``rows`` by partition."""
