"""A user's job, as `seamark verify --app` wants it, on a Seamark with one fault: rows to Kafka and
PostgreSQL by a protocol with the part named by the argument replaced. The wrong parts are those of
`tests/model/planted_bugs.py`, and one more; with ``sound`` none is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import seamark as sm
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.sink_commits import SinkCommits
from seamark.checkpoint.store import CheckpointStore
from seamark.protocol import procedures
from seamark.protocol.points import Point
from tests.model import planted_bugs as model
from tests.simulation import planted_bugs as simulation

Names = dict[tuple[Any, str], Any]
RECORDS = Path.cwd() / "storage" / "planted" / "epochs"
"""Where `seamark verify` has this job write its checkpoints."""
TRUST = "trust a batch id as a token after restart"
UNFENCED = "store without a look at the fence"
"""Shows itself only while an epoch is stored before an earlier one is committed."""
SLOW_COMMIT_S = 1.5

_is_decided, _commit = CheckpointStore.is_decided, SinkCommits.commit
_seal, _commit_attempt = CheckpointStore.seal, procedures.commit_attempt


def _is_stored(self: CheckpointStore, epoch: int) -> bool:
    return _is_decided(self, epoch) or bool(self.epoch(epoch).prepared)


def _commit_oldest_attempt(self: SinkCommits, uid: str, epoch: int, generation: int) -> None:
    _commit(self, uid, epoch, min(self.job.store.epoch(epoch).prepared))


def _commit_lingering(
    self: SinkCommits, uid: str, below_generation: int, keep: Sequence[str] = ()
) -> None:
    found = [each for each in self.list_lingering(uid) if each.generation < below_generation]
    self._commit(self._attached[uid], [each.committable for each in found], -1)


def _seal_over(self: CheckpointStore, epoch: int, generation: int, seal: Any) -> Any:
    """The last seal counts. Without any, a start finds its checkpoint damaged."""
    self._delete(f"epochs/{epoch}/sealed.{generation}.json")
    _seal(self, epoch, generation, seal)
    return seal


_unstored: dict[int, Any] = {}


def _store_nothing_yet(epoch: int, generation: int, parts: Any, records: Any) -> Any:
    yield Point.PRE_COMMITTED
    procedures.check_fence(records, generation)
    yield Point.FENCE_CHECKED
    _unstored[epoch] = parts, records.read_plan(epoch)
    yield Point.PREPARED


def _store_and_commit(epoch: int, generation: int, records: Any, sinks: Any) -> Any:
    steps = _commit_attempt(epoch, generation, records, sinks)
    yield next(steps)
    if epoch in _unstored:
        records.write_prepared(epoch, generation, *_unstored.pop(epoch))
    yield from steps


def _settle(settle: Callable[..., Any]) -> Callable[..., Any]:
    return lambda own, records, sinks: settle(
        own, tuple(sorted(epoch for epoch, of in sinks._staged if of == own)), records, sinks
    )


_IN_PROCEDURES: dict[str, tuple[str, Callable[..., Any]]] = {
    "abort what was decided": ("recover", model._recover_aborting_the_last_decided),
    "forget a sink": ("commit_attempt", model._commit_forgetting_a_sink),
    "skip check_continuity": ("check_continuity", lambda epoch, last: None),
    "write before recovery has aborted": ("recover", model._recover_without_abort),
    UNFENCED: ("store_attempt", model._store_unfenced),
    "believe a sink that has forgotten": ("commit_attempt", model._commit_without_proof),
    "sweep at the end what a successor commits": ("settle_own", _settle(model._settle_stored)),
    "settle at the end only what the driver knows": ("settle_own", _settle(model._settle_known)),
}
PLANTED: dict[str, Names] = {
    "sound": {},
    **{name: {(procedures, on): wrong} for name, (on, wrong) in _IN_PROCEDURES.items()},
    "store after the decision": {
        (procedures, "store_attempt"): _store_nothing_yet,
        (procedures, "commit_attempt"): _store_and_commit,
    },
    "commit before the decision": {(CheckpointStore, "is_decided"): _is_stored},
    TRUST: {},  # `TrustingWriter`
    "reuse an id while its outcome is open": {
        (Coordinator, "begin_epoch"): simulation._settled_is_stored
    },
    "commit another generation's transactions": {(SinkCommits, "commit"): _commit_oldest_attempt},
    "no seal": {(CheckpointStore, "seal"): _seal_over},
    "commit lingering transactions": {(SinkCommits, "abort_lingering"): _commit_lingering},
    "keep the plans beyond a void decision": {(CheckpointStore, "latest_planned"): lambda self: -1},
    **simulation.AROUND,
}
"""The faults by name; `tests/simulation` plants the same ones into a simulated world."""


class TrustingWriter:
    """Leaves out an epoch that an earlier driver had stored, as if its rows were there."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, batch: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def _trusting(sink_class: type) -> type:
    class TrustingSink(sink_class):  # type: ignore[misc]
        def create_writer(self, context: sm.WriterContext) -> Any:
            writer = super().create_writer(context)
            stored = list((RECORDS / str(context.epoch)).glob("prepared.*.json"))
            return TrustingWriter(writer) if stored else writer

    return TrustingSink


def _committing_slowly(sink_class: type) -> type:
    class SlowSink(sink_class):  # type: ignore[misc]
        def create_committer(self, context: sm.SinkContext) -> Any:
            committer = super().create_committer(context)
            commit = committer.commit

            def commit_slowly(committables: Sequence[Any]) -> Any:
                time.sleep(SLOW_COMMIT_S)
                return commit(committables)

            committer.commit = commit_slowly
            return committer

    return SlowSink


bug = sys.argv[1]
kafka_sink, postgres_sink = sm.KafkaSink, sm.PostgresSink
if bug == TRUST:
    kafka_sink, postgres_sink = map(_trusting, (kafka_sink, postgres_sink))
concurrent = 1
if bug == UNFENCED:
    kafka_sink, concurrent = _committing_slowly(kafka_sink), 4
servers = os.environ.get("SEAMARK_VERIFY_KAFKA", "localhost:9092")
job = sm.Job(
    "planted",
    checkpoint=sm.CheckpointConfig(
        storage="checkpoints", interval="1s", max_concurrent_checkpoints=concurrent
    ),
)
rows = (
    job.source(sm.KafkaSource(servers, topics=["planted-in"]), uid="rows")
    .selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    .selectExpr("key", "CAST(get_json_object(value, '$.id') AS BIGINT) AS id")
)
job.sink(
    rows,
    kafka_sink(
        servers,
        topic="planted-out",
        key="key",
        value_format="json",
        transactional_id_prefix="planted",
        transaction_timeout="14min",
    ),
    uid="to-kafka",
)
url = os.environ.get("SEAMARK_VERIFY_POSTGRES", "postgresql://localhost/postgres")
job.sink(rows, postgres_sink(url, "planted", "prepared", create_table=True), uid="to-postgres")

if __name__ == "__main__":
    for (on, name), wrong in PLANTED[bug].items():
        setattr(on, name, wrong)
    job.run()
