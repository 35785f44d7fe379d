"""One job as its driver checkpoints it, and the coordinator's interface to its run of the query."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from seamark.api.config import CheckpointConfig, CheckpointMode
from seamark.checkpoint.channel_state import CHANNEL_STATE, ChannelState
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.statistics import EpochFigures
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink
from seamark.contracts.spool import SpooledSink, problem, spool_directory
from seamark.files import Directory, HadoopSettings, open_directory, open_for_rows
from seamark.files.deadline import LONG_CALL_S, storage_call
from seamark.model.errors import CheckpointError
from seamark.model.redaction import redact
from seamark.model.schema import Schema


@dataclass(frozen=True)
class CheckpointedJob:
    """`sinks` and the `schemas` of their rows are by uid. `checkpoint.storage` is ignored: the
    records are in `store`. `tasks`, and the `sessions` by uid, are as in `SinkContext`. `left` are
    uids whose stored transactions are left to their system, and their rows kept as they are."""

    name: str
    sinks: Mapping[str, TwoPhaseCommitSink[Any]]
    store: CheckpointStore
    checkpoint: CheckpointConfig
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    hadoop: HadoopSettings = field(default_factory=HadoopSettings)
    tasks: int = 0
    sessions: Mapping[str, Any] = field(default_factory=dict)
    left: Collection[str] = ()

    @property
    def visible_before_decision(self) -> bool:
        """Whether sinks commit before the decision: at-least-once and at-most-once."""
        return self.checkpoint.mode is not CheckpointMode.EXACTLY_ONCE

    @property
    def timeout_s(self) -> float:
        """The longest time an epoch may be undecided; infinite if there is no limit."""
        return _timeout_s(self.checkpoint)

    def context(self, uid: str, generation: int, identity: JobIdentity) -> SinkContext:
        """Return a sink's view of the job and its driver."""
        return SinkContext(
            job_id=identity.job_id,
            job_name=self.name,
            sink_uid=uid,
            generation=generation,
            schema=self.schemas.get(uid, ()),
            hadoop=self.hadoop,
            spool_uri=self.store.spool_uri(uid),
            tasks=self.tasks,
            session=self.sessions.get(uid),
            **transaction_scope(self.checkpoint),
        )

    # --- rows kept by sinks in the checkpoint

    def require_client_for_rows(self) -> None:
        """Raise ConfigurationError if rows are to be kept in the checkpoint, and workers have no
        client for its storage."""
        places = [
            self.store.spool_uri(uid)
            for uid, sink in self.sinks.items()
            if isinstance(sink, SpooledSink) or sink.spool
        ]
        if self.checkpoint.unaligned:
            places.append(self.store.channel_state_uri)
        for place in places:
            open_for_rows(place, self.hadoop)

    def find_damaged_rows(self, epoch: int, generation: int) -> list[str]:
        """Return a line for each damaged or missing file among the rows kept by sinks for a stored
        attempt. Called by `require_sound`, before the job starts."""
        identity = self.store.read_identity()
        problems: list[str] = []
        for uid, part in self.store.read_prepared(epoch, generation).items():
            sink = self.sinks.get(uid)
            if isinstance(sink, SpooledSink):
                committables = [sink.load(data) for data in part.committables]
                look = partial(sink.find_damage, committables, self.context(uid, 0, identity))
                where = f"{self.store.uri}, rows of sink {uid!r}"
                problems += storage_call(LONG_CALL_S, look, "read", where)
        return problems

    def find_damaged_channel_state(self, state: ChannelState) -> list[str]:
        """Return a line for each damaged or missing file of a channel state, before the start."""

        def look() -> list[str]:
            files = {segment.file.path: segment.file for segment in state.segments()}
            if not files:
                return []
            directory = open_directory(self.store.channel_state_uri, self.hadoop)
            faults = ((path, problem(directory, file)) for path, file in files.items())
            return [f"{CHANNEL_STATE}/{path}: {fault}" for path, fault in faults if fault]

        return storage_call(LONG_CALL_S, look, "read", f"{self.store.uri}/{CHANNEL_STATE}")

    def unsent_rows(
        self, uid: str, part: SinkEpoch, generation: int, identity: JobIdentity
    ) -> tuple[SinkEpoch, Mapping[str, str]]:
        """Return the part of a sink's epoch not known to be at its target, and its rows' paths.

        The paths are empty unless the sink keeps its rows in this job's directory. They map each
        path below the directory to the path at this moment, while a commit may be under way.
        """
        sink = self.sinks[uid]
        if not isinstance(sink, SpooledSink):
            return part, {}
        loaded = {data: sink.load(data) for data in part.committables}
        context = self.context(uid, generation, identity)
        unsent = sink.find_unsent(list(loaded.values()), context)
        left = [data for data, committable in loaded.items() if committable.handle in unsent]
        at = spool_directory(uid)
        return (
            SinkEpoch(part.rows, tuple(left)),
            {f"{at}/{handle}": f"{at}/{path}" for handle, path in unsent.items()},
        )

    def forget_rows(self, epoch: int) -> None:
        """Delete the rows kept by sinks for an epoch committed everywhere."""
        for uid, sink in self.sinks.items():
            if isinstance(sink, SpooledSink) or sink.spool:
                self.store.forget_rows(uid, epoch)


def transaction_scope(checkpoint: CheckpointConfig) -> dict[str, Any]:
    """Return the fields of a `SinkContext` on how long, and how many, transactions may be open."""
    early = checkpoint.mode is not CheckpointMode.EXACTLY_ONCE
    restart_s = checkpoint.restart_strategy.longest_delay_s
    return {
        "checkpoint_interval_s": checkpoint.interval_s,
        "checkpoint_timeout_s": 0.0 if early else _timeout_s(checkpoint),
        "restart_delay_s": max(restart_s, checkpoint.tolerated_downtime_s),
        "open_epochs": checkpoint.max_concurrent_checkpoints + 1,
    }


def _timeout_s(checkpoint: CheckpointConfig) -> float:
    return math.inf if checkpoint.timeout == timedelta.max else checkpoint.timeout_s


class QueryRun:
    """The run of Spark's query, as the coordinator queries and notifies it.

    The one way back from `checkpoint` to `run`: `StreamRun`; this base has no Spark.
    """

    def stop_soon(self) -> None:
        """End the query without waiting for it: the run has failed. Called from any thread."""

    def after_commit(self, epoch: int) -> Mapping[str, Callable[[], object]]:
        """Return the upkeep due when every sink has committed the epoch, by its name for people."""
        return {}

    def measure(self, epochs: Sequence[int]) -> Mapping[int, EpochFigures]:
        """Return the available figures of decided epochs; may take its time."""
        return {}

    def open_files(self, uri: str) -> Directory:
        """Return another job's checkpoint directory: it holds a spool taken over by a restore."""
        raise CheckpointError(f"this coordinator was given no way to open {uri}")

    def hide(self, text: str) -> str:
        """Return the text without the job's secrets."""
        return redact(text)
