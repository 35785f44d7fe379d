"""Wrong coordinators: the wrong protocols of `tests/model`, put into the real code, and faults of
the code around the protocol. The simulation must find every one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from seamark.checkpoint import sink_commits
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.epoch_queue import EpochQueue
from seamark.checkpoint.sink_commits import SinkCommits
from seamark.checkpoint.spool import LostTransaction
from seamark.checkpoint.store import CheckpointStore
from seamark.protocol import procedures
from seamark.sinks.write_ahead.epoch_spool import EpochSpool
from tests.model.driver import Protocol
from tests.model.planted_bugs import (
    FIRST_VERSIONS,
    PLANTED,
    PLANTED_AT_MOST_ONCE,
    PLANTED_SUPERSEDING,
    PLANTED_WRITE_AGAIN,
)
from tests.model.replay import Call

from .reality import SPOOLED, TWO_PHASE, WRITE_AHEAD, Surroundings
from .threads import machine, patched

RIGHT = Protocol()
Names = dict[tuple[Any, str], Any]


@dataclass(frozen=True)
class Bug:
    """A wrong coordinator: `names` are the parts of the code it replaces, `protocol` has the rules
    of the tasks; `in_world` says which worlds it is wrong in."""

    names: Names
    in_world: Callable[[Surroundings], bool]
    protocol: Protocol = RIGHT

    def planted(self) -> AbstractContextManager[None]:
        return patched(self.names)


def _world() -> Any:
    return machine().world


def _with_execute(execute: Callable[[Any, Call], Any], cls: type, name: str) -> Any:
    real = getattr(cls, name)

    @wraps(real)
    def instead(self: Any, *args: Any, **kwargs: Any) -> Any:
        replaced = execute(_world(), Call(name, args))
        if replaced is None:
            return real(self, *args, **kwargs)
        return replaced() if callable(replaced) else replaced

    return instead


def _in_real_code(protocol: Protocol) -> Names:
    """Return the parts of the real coordinator that a protocol of the model's replaces."""
    names: Names = {}
    for name in ("take_over", "recover", "claim_epoch", "store_attempt", "commit_attempt"):
        if getattr(protocol, name) is not getattr(RIGHT, name):
            names[procedures, name] = getattr(protocol, name)
    if protocol.check_continuity is not RIGHT.check_continuity:
        names[procedures, "check_continuity"] = protocol.check_continuity
    if protocol.settle_own is not RIGHT.settle_own:
        names[procedures, "settle_own"] = lambda own, records, sinks: protocol.settle_own(
            own, tuple(sorted(e for e, g in sinks._staged if g == own)), records, sinks
        )
    if protocol.is_decided is not RIGHT.is_decided:
        names[CheckpointStore, "is_decided"] = lambda self, epoch: protocol.is_decided(
            _world(), epoch
        )
    if protocol.write_again is not RIGHT.write_again:
        names[sink_commits, "write_again"] = lambda rewrites: protocol.write_again(rewrites) or ()
    if protocol.execute is not RIGHT.execute:
        for cls, calls in (
            (CheckpointStore, ("seal", "latest_planned", "claim_epoch")),
            (SinkCommits, ("commit", "abort_lingering")),
        ):
            for name in calls:
                names[cls, name] = _with_execute(protocol.execute, cls, name)
    return names


def _exactly_once(setup: Surroundings) -> bool:
    return not setup.at_most_once and TWO_PHASE in setup.ways


def _at_most_once(setup: Surroundings) -> bool:
    return setup.at_most_once and TWO_PHASE in setup.ways


def _write_ahead(setup: Surroundings) -> bool:
    return WRITE_AHEAD in setup.ways


def _spooled(setup: Surroundings) -> bool:
    return SPOOLED in setup.ways


# --- faults of the code around the protocol


def _sweep_all(self: Any, epoch: int) -> bool:
    with self._committing:
        return bool(self._commits.sweep(self.generation + 1))


def _settled_is_stored(self: Any, epoch: int) -> int:
    _BEGIN_EPOCH(self, epoch)
    stored: int = self.last_stored
    return stored


def _asked_once(self: Any, call: Any, committables: Any, *_: Any, **__: Any) -> Any:
    return list(call(committables)) if committables else []


def _committed_in_silence(self: Any, progress: Any) -> None:
    with self.changed:
        self._pause_until = progress.committed_s + self._min_pause_s
        self.uncommitted.popleft()


def _abort_all_of_a_failed_run(self: Any, quiesce_s: float) -> None:
    self._commits.sweep(self.generation + 1, once=False)


def _decided_at_the_end(self: Any, progress: Any) -> bool:
    return bool(_AWAIT_DECISION(self, progress) or self.epochs.over)


def _create_over(self: Any, kind: str, path: str, body: Any) -> bool:
    _CREATE(self, kind, path, body)
    return True


def _committed_and_forgotten(self: Any, epoch: int, generation: int) -> None:
    _WRITE_COMMITTED(self, epoch, generation)
    for uid in _world().sinks:
        self._files.delete(f"rewritten/{uid}/{epoch}")


def _record_over(self: Any, number: int) -> None:
    self._files.delete(self._path(number))
    self.record(number)


_BEGIN_EPOCH = Coordinator.begin_epoch
_AWAIT_DECISION = Coordinator._await_decision
_CREATE = CheckpointStore._create
_WRITE_COMMITTED = CheckpointStore.write_committed

AROUND: dict[str, Names] = {
    "sweep the winners too after a retry": {(Coordinator, "_abort_failed_attempts"): _sweep_all},
    "call stored epochs settled": {(Coordinator, "begin_epoch"): _settled_is_stored},
    "take RETRY for an outcome": {(SinkCommits, "_until_proved"): _asked_once},
    "wake nobody after a commit": {(EpochQueue, "committed"): _committed_in_silence},
    "abort what a failed run has stored": {
        (Coordinator, "_abort_unstored"): _abort_all_of_a_failed_run
    },
    "take the query's end for the decision": {
        (Coordinator, "_await_decision"): _decided_at_the_end
    },
    "create without excluding others": {(CheckpointStore, "_create"): _create_over},
}
"""Faults of the coordinator, its queue, its store and its commits, beside the protocol."""

_OWN: Names = {
    (LostTransaction, "commit_own"): lambda self: self._commit_now(self._own),
    (LostTransaction, "record_over"): _record_over,
}


def _bugs() -> dict[str, Bug]:
    bugs = {name: Bug(names, _exactly_once) for name, names in AROUND.items()}
    for name, protocol in {**PLANTED, **FIRST_VERSIONS}.items():
        bugs[name] = Bug(_in_real_code(protocol), _exactly_once, protocol)
    for name, protocol in PLANTED_AT_MOST_ONCE.items():
        bugs[name] = Bug(_in_real_code(protocol), _at_most_once, protocol)
    for name, protocol in PLANTED_WRITE_AGAIN.items():
        bugs[name] = Bug({**_OWN, **_in_real_code(protocol)}, _spooled, protocol)
    name = "start after the last lease"
    bugs[name] = Bug(_in_real_code(PLANTED_SUPERSEDING[name]), _exactly_once)
    bugs["believe the first listing of a spool"] = Bug(
        {(EpochSpool, "has_changed"): lambda self: False}, _write_ahead
    )
    bugs["delete the records of rewrites with the epoch"] = Bug(
        {(CheckpointStore, "write_committed"): _committed_and_forgotten}, _spooled
    )
    return bugs


BUGS = _bugs()
