"""The driver's side: checks the server, applies or drops stages, lists what lingers.

An upserting sink has nothing to commit; its committer raises the guard at the start, and ends what
the sink left when it was a staged one. Failpoints: `block-applied` after each block's answer;
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
from seamark.sinks.internal.servers import Reasons, ask_until_listed
from seamark.sinks.redis import preflight, scripts, server
from seamark.sinks.redis.committable import Keys, RedisCommittable
from seamark.sinks.redis.server import ANSWER_TIMEOUT_S, Link

if TYPE_CHECKING:
    from seamark.sinks.redis.sink import RedisSink

_log = logging.getLogger(__name__)
T = TypeVar("T")

COMMIT_CALL_S = 5.0
"""A commit that has taken so long answers RETRY, and goes on from there when it is called again."""

_COMMITS = {
    b"committed": Fate.ENDED_NOW,
    b"already": Fate.COMMITTED,
    b"lost": Fate.ABORTED,
    b"forgotten": Fate.FORGOTTEN,
}


class RedisCommitter:
    """See `Committer`. Keeps one connection between calls; a new one after any failure."""

    def __init__(self, sink: RedisSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._keys = Keys(context.job_id, context.sink_uid)
        self._name = f"sink `{context.sink_uid}`: {sink.describe()}"
        self._link: Link | None = None
        self._reasons = Reasons(_log, self._name)

    def preflight(self) -> None:
        """See `Committer`. From here on no older generation's task writes anything."""
        preflight.check(self._sink, self._context, self._keys, self._name)

    def commit(self, committables: Sequence[RedisCommittable]) -> Sequence[CommitOutcome]:
        """See `Committer`. Stages are applied one after another, a block at a time. Raises
        CommitFailedError when a key holds something else than what is to be written."""
        deadline = time.monotonic() + COMMIT_CALL_S
        outcomes = [
            self._asked(partial(self._commit, c, deadline)) or CommitOutcome.RETRY
            for c in committables
        ]
        if self._sink.replicas and any(o is not CommitOutcome.RETRY for o in outcomes):
            wanted = self._sink.replicas
            have = self._asked(lambda: server.replicas_reached(self._connected, self._keys, wanted))
            if have is None or have < wanted:
                self._reasons.say(f"only {have or 0} of {wanted} replicas have what was committed")
                gone = (CommitOutcome.LOST, CommitOutcome.UNKNOWN)
                # What is applied is found so by the next call.
                return [o if o in gone else CommitOutcome.RETRY for o in outcomes]
        if CommitOutcome.RETRY not in outcomes:
            self._reasons.forget()
        return outcomes

    def abort(self, committables: Sequence[RedisCommittable]) -> Sequence[AbortOutcome]:
        """See `Committer`. A late commit, or a writer that goes on, finds no stage."""
        return [self._asked(partial(self._abort, c)) or AbortOutcome.RETRY for c in committables]

    def list_lingering(self) -> Iterable[Lingering[RedisCommittable]]:
        """See `Committer`: the stages that are neither applied nor dropped, whatever the mode now.

        Raises AbortFailedError when the server does not answer for `LISTING_DEADLINE_S`.
        """
        stages = self._keys.named("stages")
        handles = ask_until_listed(
            lambda: self._asked(lambda: self._connected.call("HKEYS", stages)),
            lambda: (
                f"{self._name}: the stages could not be listed ({self._reasons.last}); start "
                "the job again when the server answers"
            ),
        )
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

    def _commit(self, c: RedisCommittable, deadline: float) -> CommitOutcome | None:
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

    def _asked(self, ask: Callable[[], T | None]) -> T | None:
        """Return what `ask` returns; None when the server is away, or does not let us ask now."""
        try:
            return ask()
        except server.driver().RedisError as error:
            self.close()
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
            self._link = Link(self._sink.address, ANSWER_TIMEOUT_S)
        return self._link
