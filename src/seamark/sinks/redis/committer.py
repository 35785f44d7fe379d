"""Driver side: checks the server, applies or drops stages, lists lingering stages.

An upserting sink has nothing to commit. Its committer raises the guard at the start, and ends
stages left from a time in staged mode. Failpoints: `block-applied` after the answer to each block;
`ledger-committed` when a stage is applied and its proof written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, SinkContext
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.internal.servers import Reasons
from seamark.sinks.redis import preflight, scripts, server
from seamark.sinks.redis.committable import Keys, RedisCommittable
from seamark.sinks.redis.server import Link

if TYPE_CHECKING:
    from seamark.sinks.redis.sink import RedisSink

_log = logging.getLogger(__name__)
T = TypeVar("T")
O = TypeVar("O", CommitOutcome, AbortOutcome)  # noqa: E741 - an outcome

COMMIT_CALL_S = 5.0
"""Time in seconds after which a commit answers RETRY. The next call continues from there."""

_COMMITS = {
    b"committed": Fate.ENDED_NOW,
    b"already": Fate.COMMITTED,
    b"lost": Fate.ABORTED,
    b"forgotten": Fate.FORGOTTEN,
}


class RedisCommitter:
    """See `Committer`. Keeps one connection between calls, until a failure."""

    def __init__(self, sink: RedisSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._keys = Keys(context.job_id, context.sink_uid)
        self._name = f"sink `{context.sink_uid}`: {sink.describe()}"
        self._link: Link | None = None
        self._reasons = Reasons(_log, self._name)

    def preflight(self) -> None:
        """See `Committer`. From here on no task of an older generation writes anything."""
        preflight.check(self._sink, self._context, self._keys, self._name)

    def commit(self, committables: Sequence[RedisCommittable]) -> Sequence[CommitOutcome]:
        """See `Committer`. Applies stages one after another, a block at a time. Raises
        CommitFailedError when a key holds a value of another type."""
        deadline = time.monotonic() + COMMIT_CALL_S
        outcomes = self._each(partial(self._commit, deadline), committables, CommitOutcome.RETRY)
        if self._sink.replicas and any(o is not CommitOutcome.RETRY for o in outcomes):
            wanted = self._sink.replicas
            have = self._asked(lambda: server.replicas_reached(self._connected, self._keys, wanted))
            if have is None or have < wanted:
                self._reasons.say(f"only {have or 0} of {wanted} replicas have what was committed")
                gone = (CommitOutcome.LOST, CommitOutcome.UNKNOWN)
                # The next call finds the applied stages.
                return [o if o in gone else CommitOutcome.RETRY for o in outcomes]
        if CommitOutcome.RETRY not in outcomes:
            self._reasons.forget()
        return outcomes

    def abort(self, committables: Sequence[RedisCommittable]) -> Sequence[AbortOutcome]:
        """See `Committer`. A late commit, or a writer still running, finds no stage."""
        return self._each(self._abort, committables, AbortOutcome.RETRY)

    def list_lingering(self) -> Iterable[Lingering[RedisCommittable]]:
        """See `Committer`. Lists the stages neither applied nor dropped, in either mode."""
        stages = self._keys.named("stages")
        handles = self._answered(lambda: self._connected.call("HKEYS", stages))
        return [
            Lingering(RedisCommittable.found(self._context, str(name), name), name.generation)
            for handle in handles
            if (name := AttemptName.parse(handle.decode())) is not None
        ]

    def close(self) -> None:
        """See `Committer`."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _each(
        self,
        end: Callable[[RedisCommittable], O | None],
        stages: Sequence[RedisCommittable],
        open_: O,
    ) -> list[O]:
        """End one after another. Without an answer to one the others are not asked: each would
        wait as long."""
        outcomes = [open_] * len(stages)
        for i, stage in enumerate(stages):
            outcomes[i] = self._asked(partial(end, stage)) or open_
            if self._link is None:
                break
        return outcomes

    def _commit(self, deadline: float, c: RedisCommittable) -> CommitOutcome | None:
        while True:
            answer = self._run(scripts.COMMIT, c, c.epoch, c.blocks)
            failpoints.reached("block-applied")
            if answer != b"more":
                if answer == b"committed":
                    failpoints.reached("ledger-committed")
                return _COMMITS[answer].of_commit
            if time.monotonic() > deadline:
                return None

    def _abort(self, c: RedisCommittable) -> AbortOutcome:
        return Fate(self._run(scripts.ABORT, c).decode()).of_abort

    def _run(self, script: str, c: RedisCommittable, *arguments: int) -> Any:
        keys = c.keys
        named = keys.named("stages"), keys.stage(c.handle), keys.named("committed")
        return self._connected.call("EVAL", script, len(named), *named, c.handle, *arguments)

    def _answered(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`; any error closes the connection."""
        try:
            return ask()
        except BaseException:
            self.close()
            raise

    def _asked(self, ask: Callable[[], T | None]) -> T | None:
        """Return the result of `ask`, None if the server is away or cannot answer now."""
        try:
            return self._answered(ask)
        except server.driver().RedisError as error:
            if server.refuses(error):
                raise CommitFailedError(
                    f"{self._name}: a key holds something that cannot be overwritten: {error}. Its "
                    "epoch is decided: delete the key and start the job again, and it goes on"
                ) from error
            self._reasons.say(f"the server does not do it now: {error}")
            return None

    @property
    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._sink.address)
        return self._link
