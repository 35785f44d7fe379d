"""Wrong data sources: wrong steps put into the real code. The simulation must find every one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from seamark.checkpoint import batch_log
from seamark.checkpoint.batch_log import UID, StoredLog
from seamark.checkpoint.spool import load
from seamark.datasource.location import Location, _Sinks
from seamark.datasource.writers import BatchCommit
from seamark.protocol import batches
from seamark.protocol.batches import BatchPoint, Decided, Try

from ..planted_bugs import Names
from ..reality import SPOOLED, TWO_PHASE, UPSERT, WRITE_AHEAD, Surroundings
from ..threads import patched


@dataclass(frozen=True)
class Bug:
    """A wrong data source: `names` are the parts of the code it replaces, `ways` the sinks with
    which it is wrong."""

    names: Names
    ways: tuple[str, ...] = (TWO_PHASE, SPOOLED, WRITE_AHEAD)

    def planted(self) -> AbstractContextManager[None]:
        return patched(self.names)

    def in_world(self, setup: Surroundings) -> bool:
        return setup.ways[0] in self.ways


Steps = Generator[BatchPoint, None, Any]
Check = Callable[[Mapping[int, Any]], None]
_BEGIN, _COMMIT, _SETTLE = batches.begin, batches.commit, batches._settle
_CREATE = batch_log.create_record
_TAKE_OVER = Location._take_over_from


def _decided_after_the_commit(log: Any, sink: Any, mine: Decided) -> Steps:
    entries = log.entries()
    batches.check_fence(entries, mine.attempt)
    decided = batches.newest_decision(entries)
    if decided is None or decided.batch < mine.batch:
        sink.commit(mine)
    yield from _COMMIT(log, sink, mine)


def _decided_again(log: Any, sink: Any, mine: Decided) -> Steps:
    entries = log.entries()
    batches.check_fence(entries, mine.attempt)
    number = max(entries) + 1
    log.append(number, mine)
    yield from _SETTLE(log, sink, number, mine)


class _Believes:
    """Takes each decision for committed."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def entries(self) -> Mapping[int, Any]:
        entries = self._log.entries().items()
        return {
            n: replace(entry, committed=True) if isinstance(entry, Decided) else entry
            for n, entry in entries
        }


def _settles_nothing(log: Any, sink: Any, previous: int, check: Check) -> Steps:
    return (yield from _BEGIN(_Believes(log), sink, previous, check))


def _aborts_first(log: Any, sink: Any, previous: int, check: Check) -> Steps:
    """Aborts what older generations left before it has committed what is decided."""
    number = max(log.entries(), default=0) + 1
    sink.attach(number)
    this = yield from _BEGIN(log, _AbortsFirst(sink), previous, check)
    return this


class _AbortsFirst:
    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def take_over(self, generation: int) -> None:
        self._sink.take_over(generation)
        self._sink.abort(self._sink.lingering(generation))


def _sweeps_without_a_look(log: Any, sink: Any, mine: Decided) -> Steps:
    left = sink.lingering(mine.generation + 1)
    yield BatchPoint.SWEPT
    sink.abort(left)


def _marks_first(log: Any, sink: Any, number: int, decided: Decided) -> Steps:
    if not decided.committed:
        log.mark_committed(number)
    return (yield from _SETTLE(log, sink, number, decided))


def _forgets_first(log: Any, sink: Any, number: int, decided: Decided) -> Steps:
    sink.forget(decided)
    return (yield from _SETTLE(log, sink, number, decided))


def _aborts_a_failed_batch(self: Any, messages: Any, batch: int) -> None:
    place = self._place
    told = [message for message in messages if message is not None and message.report]
    parts = [m.report.sinks[UID] for m in told if UID in m.report.sinks]
    left = [load(place.sink, data)[0] for part in parts for data in part.committables]
    if left:
        sinks = _Sinks(place)
        sinks.attach(told[0].generation)
        sinks.commits.abort_listed(UID, left, once=True)


def _created_over(files: Any, kind: str, path: str, body: Any) -> bool:
    _CREATE(files, kind, path, body)
    return True


def _forget_the_newest(self: Any) -> None:
    self.forget(max(self._read) + 1)


def _takes_any_moment(self: Try, batch: int, query: str, *, adopts: bool) -> bool:
    return self.decided is None or batch > self.decided.batch


def _looks_nowhere(self: Any, spark: Any, batch: int, query: str, *, looks: bool) -> None:
    _TAKE_OVER(self, spark, batch, query, looks=False)


BUGS = {
    "decide without a fence": Bug({(batches, "check_fence"): lambda entries, number: None}),
    "decide after the commit": Bug({(batches, "commit"): _decided_after_the_commit}),
    "write a replayed batch again": Bug(
        {
            (Try, "writes"): lambda self, batch, query, *, adopts: True,
            (batches, "commit"): _decided_again,
        }
    ),
    "take each decision for committed": Bug({(batches, "begin"): _settles_nothing}),
    "abort before what is decided is committed": Bug({(batches, "begin"): _aborts_first}),
    "abort nothing at the beginning": Bug({(_Sinks, "abort"): lambda self, left: None}),
    "sweep without a look": Bug({(batches, "sweep"): _sweeps_without_a_look}),
    "mark before the commit": Bug({(batches, "_settle"): _marks_first}, (TWO_PHASE, SPOOLED)),
    "forget rows before the commit": Bug(
        {(batches, "_settle"): _forgets_first}, (SPOOLED, WRITE_AHEAD)
    ),
    "abort the transactions of a failed batch": Bug(
        {(BatchCommit, "abort"): _aborts_a_failed_batch}
    ),
    "create without excluding others": Bug({(batch_log, "create_record"): _created_over}),
    "delete the newest decision": Bug({(StoredLog, "tidy"): _forget_the_newest}),
    "take a checkpoint of any moment": Bug(
        {(Try, "writes"): _takes_any_moment}, (TWO_PHASE, SPOOLED, WRITE_AHEAD, UPSERT)
    ),
    "look at no other location": Bug({(Location, "_take_over_from"): _looks_nowhere}),
    "never look for the mark": Bug({(StoredLog, "is_committed"): lambda self, number: False}),
}
