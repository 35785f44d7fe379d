"""Driver side: sends an epoch's spool files once, and records the send.

An epoch is sent whole or not at all. A crash sends it twice only between the return of `send` and
the durable record. A call that outlives its run is not made again: the next start in its process
waits for it. Failpoints: `rows-sent` before the record, `sent-recorded` after it. The coordinator
deletes the files once the epoch has its committed record.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, SinkContext
from seamark.contracts.spool import parse_path
from seamark.contracts.write_ahead import EpochToken, require_done
from seamark.files import open_directory
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError, SendRefusedError
from seamark.model.uncaught import shown
from seamark.sinks.internal.servers import usable
from seamark.sinks.write_ahead.epoch_spool import CLAIMED, EpochSpool, Sent, SpooledRows, read_sent

if TYPE_CHECKING:
    from seamark.sinks.write_ahead.sink import WriteAheadSink

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of `send`, for these handles. `outcome` is done when it has returned or raised."""

    committer: "WriteAheadCommitter"
    key: tuple[str, int]
    handles: list[str]
    outcome: Future[None]

    def failed_before(self, committer: "WriteAheadCommitter") -> bool:
        """Return whether it failed in an earlier run: the target may be mended since."""
        ended = self.outcome.done() and self.outcome.exception() is not None
        return ended and self.committer is not committer


_calls: dict[tuple[str, int], _Call] = {}
"""By spool and epoch: the call that runs, or has returned and is not recorded yet. Of this process,
since a call cannot be interrupted and may outlive its run."""


class WriteAheadCommitter:
    """See `Committer`. Holds nothing open between calls."""

    def __init__(self, sink: "WriteAheadSink", context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._name = f"sink {context.sink_uid!r}: {sink.describe()}"
        self._own = open_directory(context.spool_uri, context.hadoop)

    def preflight(self) -> None:
        """Check the spool, and let the sink check its target. Raises PreflightError."""
        with usable(
            f"{self._name}: its spool {self._own}",
            OSError,
            "see that the checkpoint storage answers and lets this user list files",
        ):
            self._own.tree("0")
        self._sink.check_target()

    def commit(self, committables: Sequence[SpooledRows]) -> Sequence[CommitOutcome]:
        """Send each epoch's rows, unless a record says they were sent.

        LOST for all of them: a spool file is missing or damaged. UNKNOWN: another job wrote them,
        and nothing is left. Raises SendRefusedError for rows the target refuses for good,
        CommitFailedError when `send` does not return in time.
        """
        outcomes: dict[str, CommitOutcome] = {}
        for _, rows_of_attempt in groupby(sorted(committables, key=_attempt), key=_attempt):
            attempt = sorted(rows_of_attempt, key=lambda rows: rows.handle)
            outcomes.update(self._commit_attempt(attempt))
        return [outcomes[committable.handle] for committable in committables]

    def abort(self, committables: Sequence[SpooledRows]) -> Sequence[AbortOutcome]:
        """Delete each spool file; a later commit finds none."""
        return [self._abort(committable) for committable in committables]

    def list_lingering(self) -> Iterator[Lingering[SpooledRows]]:
        """Yield every file in this sink's own spool, unless its send has begun."""
        at = self._context
        files = self._own.tree()
        sent = read_sent(self._own, frozenset(files))
        for path in sorted(files):
            name = parse_path(path)
            if name is not None and path not in sent:
                stored = {"directory": at.spool_uri, "size_bytes": files[path]}
                rows = SpooledRows.found(at, path, name, **stored)
                yield Lingering(rows, name.generation)

    def close(self) -> None:
        """Do nothing: nothing is open between calls."""

    def _commit_attempt(self, attempt: list[SpooledRows]) -> dict[str, CommitOutcome]:
        epoch = EpochSpool.find(attempt, self._context.spool_uri, self._context.hadoop)
        waiting = epoch.unsent(attempt)
        outcomes = dict.fromkeys(
            (b.handle for b in attempt if b not in waiting), CommitOutcome.ALREADY_COMMITTED
        )
        if not waiting:
            return outcomes
        handles = [b.handle for b in waiting]
        token = EpochToken(waiting[0].job_id, waiting[0].sink_uid, waiting[0].epoch)
        call = _calls.get((epoch.directory.uri, epoch.epoch))
        if call is None or call.handles != handles or call.failed_before(self):
            problems = [problem for b in waiting if (problem := epoch.problem(b))]
            problems = problems or [f"{h}: aborted" for h in handles if not epoch.claim(h)]
            if problems and epoch.has_changed():  # another driver of this job claimed or sent them
                return {**outcomes, **dict.fromkeys(handles, CommitOutcome.RETRY)}
            if problems:
                log.error("%s: epoch %d cannot be sent: %s", self._name, token.epoch, problems)
                gone = CommitOutcome.UNKNOWN if epoch.forgotten else CommitOutcome.LOST
                return {**outcomes, **dict.fromkeys(handles, gone)}
            if call is not None and not call.outcome.done():  # of an attempt sent before it failed
                raise ConnectionError(f"an earlier send of epoch {token.epoch} still runs")
            call = self._begin(epoch, handles, token)
        self._await(call, token)
        failpoints.reached("rows-sent")
        epoch.record(Sent(tuple(handles), str(token)))
        failpoints.reached("sent-recorded")
        _forget(call)
        return {**outcomes, **dict.fromkeys(handles, CommitOutcome.COMMITTED)}

    def _begin(self, epoch: EpochSpool, handles: list[str], token: EpochToken) -> _Call:
        """Call `send` in a thread of its own, which is in the sink's session."""
        key, context = (epoch.directory.uri, epoch.epoch), self._context
        call = _Call(self, key, handles, Future())

        def run() -> None:
            try:
                with context.session(token.epoch) if context.session else nullcontext() as session:
                    send: Callable[..., Any] = self._sink.send
                    require_done(send(epoch.read(handles, session), token), "send")
                call.outcome.set_result(None)
            except BaseException as error:
                call.outcome.set_exception(error)

        _calls[call.key] = call
        threading.Thread(target=run, name="seamark-send", daemon=True).start()
        return call

    def _await(self, call: _Call, token: EpochToken) -> None:
        """Return when `send` has, within `send_timeout_s`. Raises ConnectionError if it must be
        called again."""
        stay = (
            f"They stay in {call.key[0]}/{token.epoch}, and the next start of the job "
            f"sends them again, with token {token}"
        )
        try:
            error = call.outcome.exception(self._sink.send_timeout_s)
        except FutureTimeoutError:
            raise CommitFailedError(
                f"{self._name}: send has not returned within {self._sink.send_timeout_s:g} s "
                f"(send_timeout). Epoch {token.epoch} is decided; whether its rows have arrived is "
                f"not known. {stay}; in this very program it first waits for this call"
            ) from None
        if error is None:
            return
        _forget(call)
        ordinary = isinstance(error, Exception)  # `sys.exit` ends the job: it may come after writes
        if not ordinary or isinstance(error, (SendRefusedError, *self._sink.permanent_errors)):
            said = str(error) if isinstance(error, SendRefusedError) else shown(error)
            raise SendRefusedError(
                f"{self._name} refuses the rows of epoch {token.epoch}: "
                f"{said}. {stay}: mend the target before"
            ) from error
        # Not the error itself: one of Seamark's own would end the job.
        raise ConnectionError(
            f"epoch {token.epoch} could not be sent: {type(error).__name__}: {error}"
        ) from error

    def _abort(self, rows: SpooledRows) -> AbortOutcome:
        open_directory(rows.directory, self._context.hadoop).remove(rows.handle)
        epoch = EpochSpool.listed(rows.directory, self._context.hadoop, rows.epoch)
        if rows.handle in epoch.sent():
            return AbortOutcome.COMMITTED
        if rows.handle + CLAIMED in epoch.files:  # somebody is sending it
            return AbortOutcome.RETRY
        return AbortOutcome.ABORTED


def _forget(call: _Call) -> None:
    if _calls.get(call.key) is call:  # a run that was given up may have done so
        del _calls[call.key]


def _attempt(rows: SpooledRows) -> tuple[str, str, int, int]:
    return (rows.directory, rows.job_id, rows.epoch, rows.generation)
