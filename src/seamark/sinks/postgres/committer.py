"""The driver's side: checks the server, ends transactions and stages, lists lingering ones.

Ends the transactions of both ways, whatever the sink's current `mode`. Failpoints:
``prepared-committed`` after each COMMIT PREPARED, ``ledger-committed`` after the transaction that
moved stages.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, OpenFacts, SinkContext
from seamark.model import failpoints
from seamark.model.errors import AbortFailedError, CommitFailedError
from seamark.sinks.internal.committers import ConnectedCommitter
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.postgres import ledger, prepared, stage
from seamark.sinks.postgres.committable import PostgresCommittable
from seamark.sinks.postgres.connection import BEGIN, driver, may_pass, within

if TYPE_CHECKING:
    from seamark.sinks.postgres.sink import PostgresSink

T = TypeVar("T")
_log = logging.getLogger(__name__)

SLOWEST_MOVE_ROWS_PER_S = 5_000
"""A move of stages gets the time needed at this rate, plus the time for an answer."""


class PostgresCommitter(ConnectedCommitter["PostgresSink"]):
    """Keeps one connection between calls, and replaces a broken one."""

    def __init__(self, sink: "PostgresSink", context: SinkContext) -> None:
        super().__init__(sink, context, _log)
        self._server = sink.server

    def commit(self, committables: Sequence[PostgresCommittable]) -> Sequence[CommitOutcome]:
        """COMMIT PREPARED each; move the stages of this call, all or none.

        Raises CommitFailedError for lasting failures: the target refuses rows.
        """
        outcomes = [CommitOutcome.RETRY] * len(committables)
        with self._errors(
            CommitFailedError,
            "the rows are decided and cannot be made visible: {}. Nothing is lost: mend it and "
            "start the job again, and they are committed",
        ):
            for i, fate in self._end_prepared(committables, commit=True):
                outcomes[i] = fate.of_commit
                failpoints.reached("prepared-committed")
            self._end_staged(committables, outcomes, stage.commit)
            if any(not c.prepared for c in committables):
                failpoints.reached("ledger-committed")
        return outcomes

    def abort(self, committables: Sequence[PostgresCommittable]) -> Sequence[AbortOutcome]:
        """ROLLBACK PREPARED each; drop the stages and record this in the ledger."""
        outcomes = [AbortOutcome.RETRY] * len(committables)
        with self._errors(AbortFailedError, "its transactions cannot be rolled back: {}"):
            for i, fate in self._end_prepared(committables, commit=False):
                outcomes[i] = fate.of_abort
            self._end_staged(committables, outcomes, stage.abort)
        return outcomes

    def list_lingering(self) -> Iterator[Lingering[PostgresCommittable]]:
        """List prepared transactions and stages of this job and sink in this database."""
        with self._connected() as connection:
            lingering = list(prepared.list_open(connection, self._context))
            lingering += [
                Lingering(c, c.generation) for c in ledger.staged(connection, self._context)
            ]
        return iter(lingering)

    def describe_open(self, committables: Sequence[PostgresCommittable]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`. The server knows the age of prepared transactions alone, and
        none times out."""
        with self._connected() as connection:
            since = prepared.started_at(connection)
        return [OpenFacts(since.get(c.handle)) for c in committables]

    def _end_prepared(
        self, committables: Sequence[PostgresCommittable], *, commit: bool
    ) -> Iterator[tuple[int, Fate]]:
        for i, committable in enumerate(committables):
            if not committable.prepared:
                continue
            try:
                with self._connected() as connection:
                    fate = prepared.end(connection, committable, commit=commit)
            except driver().Error as error:
                # Without a connection the others would fail in the same way.
                if self._connection is None or not may_pass(error):
                    raise
                _log.info("%s: %s", committable.handle, self._server.said(error))
                continue
            yield i, fate

    def _end_staged(
        self, committables: Sequence[PostgresCommittable], outcomes: list[T], end: Any
    ) -> None:
        places = [i for i, c in enumerate(committables) if not c.prepared]
        if not places:
            return
        chosen = [committables[i] for i in places]
        more_s = sum(c.rows for c in chosen) / SLOWEST_MOVE_ROWS_PER_S
        with self._connected(more_s) as connection:
            try:
                connection.execute(BEGIN)
                ended = end(connection, chosen)
                connection.execute("COMMIT")
            except BaseException as error:  # else the next try would go on in this transaction
                with contextlib.suppress(driver().Error):
                    connection.execute("ROLLBACK")
                if isinstance(error, driver().errors.ObjectNotInPrerequisiteState):
                    # Of statements on tables it lasts: no replica identity, a deferrable key.
                    raise driver().ProgrammingError(str(error)) from error
                raise
        for i, outcome in zip(places, ended, strict=True):
            outcomes[i] = outcome

    @contextlib.contextmanager
    def _connected(self, more_s: float = 0.0) -> Iterator[Any]:
        """Yield the connection; drop it when it breaks or the time is over."""
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect()
        try:
            with within(self._connection, self._server.timeout_s + more_s):
                yield self._connection
        except BaseException as error:
            known = isinstance(error, driver().Error)
            if not known or self._connection.broken or self._connection.closed:
                self.close()
            raise

    @contextlib.contextmanager
    def _errors(self, failure: type[Exception], text: str) -> Iterator[None]:
        """Raise `failure` for an error that lasts, and one that may pass without any secret."""
        try:
            yield
        except driver().Error as error:
            said = self._server.said(error)
            if may_pass(error):
                raise type(error)(said) from None
            raise failure(f"{self._name}: {text.format(said)}") from error
