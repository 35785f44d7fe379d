"""Driver side: checks the server, applies or drops stages, lists lingering stages.

An upserting sink has nothing to commit. Its committer raises the guard at the start, and ends
stages left from a time in staged mode. Failpoints: `block-applied` after the answer to each block;
`ledger-committed` when a stage is applied and its proof written.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, SinkContext
from seamark.files.deadline import Deadline
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError
from seamark.sinks.internal.committers import ConnectedCommitter, closed_by_errors
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.redis import scripts, server
from seamark.sinks.redis.committable import Keys, RedisCommittable
from seamark.sinks.redis.server import Link

if TYPE_CHECKING:
    from seamark.sinks.redis.sink import RedisSink

_log = logging.getLogger(__name__)

COMMIT_CALL_S = 5.0
"""Time in seconds after which a commit answers RETRY. The next call continues from there."""

_COMMITS = {
    b"committed": Fate.ENDED_NOW,
    b"already": Fate.COMMITTED,
    b"lost": Fate.ABORTED,
    b"forgotten": Fate.FORGOTTEN,
}


class RedisCommitter(ConnectedCommitter["RedisSink"]):
    """See `Committer`."""

    def __init__(self, sink: "RedisSink", context: SinkContext) -> None:
        super().__init__(sink, context, _log)
        self._keys = Keys(context.job_id, context.sink_uid)

    def commit(self, committables: Sequence[RedisCommittable]) -> Sequence[CommitOutcome]:
        """See `Committer`. Applies stages one after another, a block at a time. Raises
        CommitFailedError when a key holds a value of another type."""
        deadline = Deadline(COMMIT_CALL_S)
        wanted = self._sink.replicas
        with self._errors():
            outcomes = [self._commit(deadline, committable) for committable in committables]
            if wanted and any(o is not CommitOutcome.RETRY for o in outcomes):
                have = server.replicas_reached(self._connected, self._keys, wanted)
                if have < wanted:
                    self._reasons.say(f"only {have} of {wanted} replicas have what was committed")
                    gone = (CommitOutcome.LOST, CommitOutcome.UNKNOWN)
                    # The next call finds the applied stages.
                    return [o if o in gone else CommitOutcome.RETRY for o in outcomes]
        if CommitOutcome.RETRY not in outcomes:
            self._reasons.forget()
        return outcomes

    def abort(self, committables: Sequence[RedisCommittable]) -> Sequence[AbortOutcome]:
        """See `Committer`. A late commit, or a writer still running, finds no stage."""
        with self._errors():
            return [self._abort(committable) for committable in committables]

    def list_lingering(self) -> Iterable[Lingering[RedisCommittable]]:
        """See `Committer`. Lists the stages neither applied nor dropped, in either mode."""
        stages = self._keys.named("stages")
        with closed_by_errors(self):
            handles = self._connected.call("HKEYS", stages)
        return [
            Lingering(RedisCommittable.found(self._context, str(name), name), name.generation)
            for handle in handles
            if (name := AttemptName.parse(handle.decode())) is not None
        ]

    def _commit(self, deadline: Deadline, c: RedisCommittable) -> CommitOutcome:
        while True:
            answer = self._run(scripts.COMMIT, c, c.epoch, c.blocks)
            failpoints.reached("block-applied")
            if answer != b"more":
                if answer == b"committed":
                    failpoints.reached("ledger-committed")
                return _COMMITS[answer].of_commit
            if deadline.left_s() < 0:
                return CommitOutcome.RETRY

    def _abort(self, c: RedisCommittable) -> AbortOutcome:
        return Fate(self._run(scripts.ABORT, c).decode()).of_abort

    def _run(self, script: str, c: RedisCommittable, *arguments: int) -> Any:
        keys = c.keys
        named = keys.named("stages"), keys.stage(c.handle), keys.named("committed")
        return self._connected.call("EVAL", script, len(named), *named, c.handle, *arguments)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise CommitFailedError if the server refuses the rows; any error closes the link."""
        try:
            with closed_by_errors(self):
                yield
        except server.driver().RedisError as error:
            if not server.refuses(error):
                raise
            raise CommitFailedError(
                f"{self._name}: a key holds something that cannot be overwritten: {error}. Its "
                "epoch is decided: delete the key and start the job again, and it goes on"
            ) from error

    @property
    def _connected(self) -> Link:
        if self._connection is None:
            self._connection = Link(self._sink.address)
        link: Link = self._connection
        return link
