"""The driver's side: sends an epoch's buffers once, and records that it did.

An epoch is sent whole or not at all. Between the return of `send` and the durable record lies the
one window in which a crash sends twice. Failpoints: `rows-sent` before the record, `sent-recorded`
after it. The coordinator deletes the buffers once the epoch has its committed record.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from seamark.contracts.row_files import parse_path
from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, SinkContext
from seamark.contracts.write_ahead import EpochToken
from seamark.file_systems import open_directory
from seamark.model import failpoints
from seamark.model.errors import (
    AbortFailedError,
    CommitFailedError,
    PreflightError,
    SendRefusedError,
)
from seamark.sinks.write_ahead.buffers import CLAIMED, EpochBuffers, read_sent
from seamark.sinks.write_ahead.committable import UNKNOWN, BufferedRows, Sent

if TYPE_CHECKING:
    from seamark.sinks.write_ahead.sink import WriteAheadSink

log = logging.getLogger(__name__)


class WriteAheadCommitter:
    """See `Committer`. Holds nothing open between calls."""

    def __init__(self, sink: WriteAheadSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._name = f"sink {context.sink_uid!r}: {sink.describe()}"
        self._own = open_directory(context.buffer_uri, context.hadoop)
        self._unrecorded: dict[str, Sent] = {}
        self._said = ""

    def preflight(self) -> None:
        """Look at the buffer directory, and let the sink look at its target."""
        try:
            self._own.list("0")
        except OSError as error:
            raise PreflightError(
                f"{self._name}: its buffer directory {self._own.uri} cannot be used: {error}"
            ) from error
        self._sink.check_target()

    def commit(self, committables: Sequence[BufferedRows]) -> Sequence[CommitOutcome]:
        """Send each epoch's rows, unless a record says that they were sent. LOST for all of them if
        a buffer is missing or damaged; UNKNOWN if another job wrote them, and nothing is left.

        Raises SendRefusedError for what the target refuses for good, CommitFailedError when `send`
        does not return in time.
        """
        outcomes: dict[str, CommitOutcome] = {}
        for _, found in groupby(sorted(committables, key=_attempt), key=_attempt):
            attempt = sorted(found, key=lambda buffer: buffer.handle)
            try:
                outcomes.update(self._commit_attempt(attempt))
            except OSError as error:
                self._say(f"the buffers of epoch {attempt[0].epoch} cannot be used now: {error}")
                outcomes.update({buffer.handle: CommitOutcome.RETRY for buffer in attempt})
        return [outcomes[committable.handle] for committable in committables]

    def abort(self, committables: Sequence[BufferedRows]) -> Sequence[AbortOutcome]:
        """Delete each buffer; a commit that comes later finds none."""
        return [self._abort(committable) for committable in committables]

    def list_lingering(self) -> Iterator[Lingering[BufferedRows]]:
        """Yield every buffer in this sink's own directory that nobody has begun to send."""
        at = self._context
        try:
            files = self._own.list()
            sent = read_sent(self._own, frozenset(files))
        except OSError as error:
            raise AbortFailedError(
                f"{self._name}: its buffers in {self._own.uri} cannot be listed: {error}. Start "
                "the job again when the storage answers"
            ) from error
        for path in sorted(files):
            found = parse_path(path)
            if found is None or path in sent:
                continue
            epoch, generation = found
            buffer = BufferedRows(
                path, at.buffer_uri, at.job_id, at.sink_uid, generation, epoch,
                rows=UNKNOWN, size_bytes=files[path], crc32=UNKNOWN,
            )  # fmt: skip
            yield Lingering(buffer, generation)

    def close(self) -> None:
        """Nothing is open between calls."""

    def _commit_attempt(self, attempt: list[BufferedRows]) -> dict[str, CommitOutcome]:
        epoch = EpochBuffers.find(attempt, self._context.buffer_uri, self._context.hadoop)
        waiting = epoch.unsent(attempt)
        outcomes = dict.fromkeys(
            (b.handle for b in attempt if b not in waiting), CommitOutcome.ALREADY_COMMITTED
        )
        if not waiting:
            return outcomes
        handles = [b.handle for b in waiting]
        token = EpochToken(waiting[0].job_id, waiting[0].sink_uid, waiting[0].epoch)
        record = self._unrecorded.get(str(token))
        if record is None:
            problems = [found for b in waiting if (found := epoch.problem(b))]
            problems = problems or [f"{h}: aborted" for h in handles if not epoch.claim(h)]
            if problems:
                log.error("%s: epoch %d cannot be sent: %s", self._name, token.epoch, problems)
                gone = CommitOutcome.UNKNOWN if epoch.forgotten else CommitOutcome.LOST
                return {**outcomes, **dict.fromkeys(handles, gone)}
            if not self._send(epoch, handles, token):
                return {**outcomes, **dict.fromkeys(handles, CommitOutcome.RETRY)}
            record = Sent(tuple(handles), str(token))
            self._unrecorded[record.token] = record  # a full disk does not send it again
        failpoints.reached("rows-sent")
        epoch.record(record)
        failpoints.reached("sent-recorded")
        del self._unrecorded[record.token]
        return {**outcomes, **dict.fromkeys(handles, CommitOutcome.COMMITTED)}

    def _send(self, epoch: EpochBuffers, handles: list[str], token: EpochToken) -> bool:
        """Call `send` in a thread, for as long as it may take; False if it is to be tried again."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self._sink.send(epoch.read(handles), token)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="seamark-send", daemon=True)
        thread.start()
        thread.join(self._sink.send_timeout_s)
        stay = (
            f"They stay in {epoch.directory.uri}/{token.epoch}, and the next start of the job "
            f"sends them again, with token {token}"
        )
        if thread.is_alive():
            raise CommitFailedError(
                f"{self._name}: send has not returned within {self._sink.send_timeout_s:g} s "
                f"(send_timeout). Epoch {token.epoch} is decided; whether its rows have arrived is "
                f"not known. {stay}"
            )
        if not errors:
            self._said = ""
            return True
        (error,) = errors
        if isinstance(error, (SendRefusedError, *self._sink.permanent_errors)):
            raise SendRefusedError(
                f"{self._name} refuses the rows of epoch {token.epoch}: {error}. {stay}: mend the "
                "target before"
            ) from error
        self._say(f"epoch {token.epoch} could not be sent: {type(error).__name__}: {error}")
        return False

    def _abort(self, buffer: BufferedRows) -> AbortOutcome:
        try:
            open_directory(buffer.directory, self._context.hadoop).delete(buffer.handle)
            epoch = EpochBuffers.listed(buffer.directory, self._context.hadoop, buffer.epoch)
            if buffer.handle in epoch.sent():
                return AbortOutcome.COMMITTED
            if buffer.handle + CLAIMED in epoch.files:  # somebody is sending it
                return AbortOutcome.RETRY
        except OSError as error:
            self._say(f"buffer {buffer.handle} cannot be deleted now: {error}")
            return AbortOutcome.RETRY
        return AbortOutcome.ABORTED

    def _say(self, what: str) -> None:
        """Say why something is tried again; once, until something else is the reason."""
        if what != self._said:
            self._said = what
            log.warning("%s: %s; trying again", self._name, what)


def _attempt(buffer: BufferedRows) -> tuple[str, str, int, int]:
    return (buffer.directory, buffer.job_id, buffer.epoch, buffer.generation)
