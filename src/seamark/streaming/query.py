"""`StreamQuery`, returned by ``start()``: Spark's `StreamingQuery`, over all its job's restarts."""

import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkValueError
from pyspark.sql.streaming import StreamingQuery

from seamark.model.errors import UserError
from seamark.run.supervision import Supervisor
from seamark.spark.function_session import is_called_by

if TYPE_CHECKING:
    from seamark.streaming.job import StreamJob

_POLL_S = 0.02


class StreamQuery(StreamingQuery):  # type: ignore[misc]
    """One query, with every name of Spark's `StreamingQuery`.

    `runId`, `status` and the progress are those of the newest run: a restart strategy makes a new
    Spark query, with the same `id`. `spark.streams` has Spark's query of that moment.

    `job` is the query as a job, for what Spark has no name for: `job.savepoint`,
    `job.stop_with_savepoint`, `job.trigger_checkpoint`, `job.checkpoints`, `job.report`.
    """

    def __init__(self, job: "StreamJob", supervisor: Supervisor | None) -> None:
        self.job = job
        self._supervisor = supervisor
        self._newest: StreamingQuery | None = None
        self._ended = threading.Event()

    @property
    def _jsq(self) -> Any:
        if self._supervisor is not None and (query := self._supervisor.query) is not None:
            self._newest = query
        if self._newest is None:
            raise UserError(f"query {self.job.declaration.name!r} has no Spark query now")
        return self._newest._jsq

    def ended(self) -> None:
        """Called when the job has ended, and everything is settled."""
        self._ended.set()

    @property
    def isActive(self) -> bool:
        """Whether the job has not ended; also True while it waits for a restart."""
        return self._supervisor is not None and not self._ended.is_set()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended and its decided epochs are committed.

        With a `timeout`, in seconds, return whether that came in time. Raises what ended the query:
        Spark's StreamingQueryException, or an error of Seamark's.
        """
        if timeout is not None and (not isinstance(timeout, int | float) or timeout <= 0):
            raise PySparkValueError(
                errorClass="VALUE_NOT_POSITIVE",
                messageParameters={"arg_name": "timeout", "arg_value": type(timeout).__name__},
            )
        self._require_elsewhere("awaitTermination")
        if self._supervisor is not None and not self._ended.wait(timeout):
            return False
        if (error := self._error()) is not None:
            raise error
        return None if timeout is None else True

    def stop(self) -> None:
        """Stop the query after the epoch under way, and wait for its end; everything is kept.

        Unlike Spark's `stop`, which aborts it, the epoch has ten seconds to be committed. Called by
        the query's own function it returns at once; the query ends after that function's call.
        """
        if self._supervisor is not None:
            self._supervisor.stop()
            if not is_called_by(self.job.declaration):
                self._ended.wait()

    def processAllAvailable(self) -> None:
        """Wait until every row available at this call is committed to the sink. For tests, as
        Spark's."""
        self._require_elsewhere("processAllAvailable")
        super().processAllAvailable()
        while self.isActive and self._supervisor is not None:
            coordinator = self._supervisor.coordinator
            if coordinator is not None and coordinator.last_committed >= coordinator.last_stored:
                return
            time.sleep(_POLL_S)
        if (error := self._error()) is not None:
            raise error

    def exception(self) -> Any:
        """Return the error that ended the query: Spark's StreamingQueryException, or an error of
        Seamark's. None while it runs, and after a good end."""
        return self._error() if self._ended.is_set() else None

    def _require_elsewhere(self, method: str) -> None:
        if is_called_by(self.job.declaration):
            raise UserError(
                f"{method} is called by the function of this very query, which waits for the "
                "function; call it elsewhere"
            )

    def _error(self) -> BaseException | None:
        if self._supervisor is None or not self._supervisor.outcome.done():
            return None
        return self._supervisor.outcome.exception()
