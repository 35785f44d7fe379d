"""`WriteAheadSink`: the class for users to subclass, and its two ready-made uses."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from seamark.api.checks import called_with
from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink, WriterContext
from seamark.contracts.spool import SpoolWriter
from seamark.contracts.write_ahead import EpochToken, Sender
from seamark.model import failpoints
from seamark.model.durations import Duration, seconds
from seamark.model.errors import PreflightError, SendRefusedError, UserError
from seamark.model.findings import Finding, FindingCode
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Schema, quoted
from seamark.sinks.internal.columns import check_columns
from seamark.sinks.write_ahead.committer import WriteAheadCommitter
from seamark.sinks.write_ahead.epoch_spool import EpochSpool, SpooledRows

if TYPE_CHECKING:
    from seamark.sinks.write_ahead.foreach_batch import ForeachBatchSink
    from seamark.sinks.write_ahead.http import HttpSink
    from seamark.sinks.write_ahead.spark_format import SparkFormatSink


class WriteAheadWriter(SpoolWriter):
    """Task side: writes one durable spool file per attempt, none without a row. Failpoint:
    `write-ahead-written`."""

    abort = SpoolWriter.discard

    def prepare_commit(self) -> Sequence[SpooledRows]:
        """Make the spool file durable."""
        file = self.finish()
        if file is None:
            return []
        failpoints.reached("write-ahead-written")
        stored = {"directory": file.directory, "size_bytes": file.size_bytes, "crc32": file.crc32}
        return [SpooledRows.of(self._context, file.path, file.rows, **stored)]


class WriteAheadSink(TwoPhaseCommitSink[SpooledRows], Sender):
    """Keep an epoch's rows in the checkpoint, and send them when the epoch is decided.

    Subclass it for a system with nothing to offer but a way to send rows. Define `send`
    (`contracts/write_ahead.py` has its contract) and `describe`. Make the subclass a frozen
    dataclass, so that it is a picklable value. `send` gets the DataFrame's columns.

    Set these in the subclass, as attributes of the class or as fields:

    idempotent: whether the target keeps each taken token, in one step with its rows, and drops rows
        that come with the token again. Then rows are in the target exactly once. Otherwise a crash
        between `send` and its record, or a `send` failing half-way, sends rows twice.
    send_timeout: how long one `send` may take; at most 10 minutes count.
    permanent_errors: exceptions of `send` that end the job at once, besides `SendRefusedError`.
    """

    idempotent: bool = False
    send_timeout: Duration = "2min"
    permanent_errors: Sequence[type[Exception]] = (SendRefusedError,)

    @abstractmethod
    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """See `seamark.contracts.write_ahead.Sender`."""

    def check_target(self) -> None:
        """Check the real target, and change nothing there. Called in the driver at each start,
        before anything is written, and by ``explain --preflight``. Raises PreflightError with the
        remedy. Does nothing here."""

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """See `InspectedSink`: what `check_target` finds."""
        if type(self).check_target is WriteAheadSink.check_target:
            return [
                Finding(
                    FindingCode.SK005,
                    f"sink `{context.sink_uid}`",
                    f"{self.describe()} has no check of its target",
                    "give its class the method check_target",
                )
            ]
        try:
            self.check_target()
        except PreflightError as error:
            if error.finding is None:
                raise
            subject = f"sink `{context.sink_uid}`: {error.finding.subject}"
            return [replace(error.finding, subject=subject)]
        return []

    # --- ready-made

    @staticmethod
    def http(
        url: str,
        *,
        format: Literal["json", "arrow"] = "json",  # noqa: A002 - Spark's own name for it
        headers: Mapping[str, str] | None = None,
        idempotent: bool = False,
        timeout: Duration = "30s",
        rows_per_request: int = 100_000,
    ) -> "HttpSink":
        """Return a sink that POSTs each epoch's rows to an HTTP endpoint.

        url: ``http:`` or ``https:``. The login before the host and the query after ``?`` are never
            shown.
        format: ``"json"``: one object per line, as Spark's ``to_json`` writes it
            (``application/x-ndjson``); ``"arrow"``: an Arrow stream
            (``application/vnd.apache.arrow.stream``).
        headers: sent along, for example ``{"Authorization": …}``; their values are never shown.
        idempotent: whether the endpoint keeps each taken ``Idempotency-Key``, in one step with the
            rows, and answers its repetition with 2xx and no effect.
        timeout: how long the server may take to accept the connection, and then to answer. All
            requests of an epoch together may take ten minutes.
        rows_per_request: a larger epoch is sent in several requests; so is one of more than 16 MiB
            of rows in Arrow.

        Each request has the header ``Idempotency-Key: <token>``; the second request of an epoch has
        ``<token>.1``, and so on. A key stands for the same rows for ever: with another
        `rows_per_request` than in the run that wrote the epoch, they are ``<token>.<rows>-<n>``.

        Answers:

        - 2xx: the rows are taken.
        - 408, 425, 429, 5xx or no answer: tried again, after ``Retry-After`` if given.
        - 409: tried again if the endpoint is `idempotent`, as it is still working on that key.
        - Anything else: a refusal; it stops the job. Redirects are not followed.

        Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[http]'``.
        """
        from seamark.sinks.write_ahead.http import HttpSink

        return HttpSink(url, format, headers or {}, idempotent, timeout, rows_per_request)

    @staticmethod
    def spark_format(
        format: str,  # noqa: A002 - Spark's own name for it
        options: Mapping[str, object] | None = None,
        mode: Literal["append", "overwrite"] = "append",
        *,
        idempotent: bool = False,
        timeout: Duration = "10min",
    ) -> "SparkFormatSink":
        """Return a sink that writes each epoch with any of Spark's batch writers, as
        ``df.write.format(format).options(**options).mode(mode).save()``. The executors read the
        epoch's rows from the checkpoint.

        options: the writer's own; values are never shown. In a value, ``{token}``, ``{epoch}``,
            ``{job_id}`` and ``{sink_uid}`` stand for the epoch's own, so that the target recognises
            a repetition: by a directory of the epoch's own with ``mode="overwrite"``, or by Delta's
            ``txnAppId`` and ``txnVersion``. ``mode="overwrite"`` needs one in the epoch's place,
            but in output mode complete: it would delete the rows of the epochs before.
        idempotent: whether a repeated write with the same options changes nothing.
        timeout: how long one epoch's write may take.

        Raises ConfigurationError.
        """
        from seamark.sinks.write_ahead.spark_format import SparkFormatSink

        return SparkFormatSink(format, options or {}, mode, idempotent, timeout)

    @staticmethod
    def foreach_batch(
        function: Callable[[Any, Any], None],
        *,
        idempotent: bool = False,
        timeout: Duration = "10min",
        with_epoch: bool = False,
    ) -> "ForeachBatchSink":
        """Return a sink that calls ``function(df, token)`` in the driver for each epoch with rows,
        when the epoch is decided. `df` is not streaming, and has the epoch's rows; its executors
        read them from the checkpoint.

        The function is called again, with the same rows in the same partitions and the same token,
        after a crash before its return is recorded. An exception of it ends the query, as in Spark;
        the restart strategy, or the next start, calls it again.

        idempotent: whether the function keeps the token, in one step with what it writes, and does
            nothing when the token comes again.
        timeout: how long one call may take; at most 10 minutes count.
        with_epoch: give the function the epoch's number instead of the token.

        Raises ConfigurationError.
        """
        from seamark.sinks.write_ahead.foreach_batch import ForeachBatchSink

        return ForeachBatchSink(function, idempotent, timeout, with_epoch)

    # --- the rest of the sink contract

    @property
    def way(self) -> SinkWay:
        """See `TwoPhaseCommitSink`."""
        if self.idempotent:
            return SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN
        return SinkWay.WRITE_AHEAD_LOG

    @property
    def send_timeout_s(self) -> float:
        """`send_timeout` in seconds."""
        return seconds(self.send_timeout, f"{self.describe()}: send_timeout")

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return the columns as they are. Raises ConfigurationError for types Arrow lacks."""
        check_columns(schema, self.describe())
        return [quoted(column.name) for column in schema]

    def check_transaction_scope(self, context: SinkContext) -> None:
        """Check that `send_timeout` is a duration, and that a call of `send` sends."""
        _ = self.send_timeout_s
        called_with(self.send, 2, f"{self.describe()}: send", "the batches and the token")

    def create_writer(self, context: WriterContext) -> WriteAheadWriter:
        """Return a writer of one spool file. It touches nothing before the first row."""
        return WriteAheadWriter(context)

    def create_committer(self, context: SinkContext) -> WriteAheadCommitter:
        """Return the committer. It calls `send`."""
        if not context.spool_uri:
            raise UserError(f"{self.describe()}: a write-ahead sink needs a checkpoint directory")
        return WriteAheadCommitter(self, context)

    def find_damage(
        self, committables: Sequence[SpooledRows], context: SinkContext
    ) -> Sequence[str]:
        """See `contracts.spool.SpooledSink`."""
        if not committables:
            return []
        epoch = EpochSpool.find(committables, context.spool_uri, context.hadoop)
        return [problem for f in epoch.unsent(committables) if (problem := epoch.problem(f))]

    def find_unsent(
        self, committables: Sequence[SpooledRows], context: SinkContext
    ) -> Mapping[str, str]:
        """See `contracts.spool.SpooledSink`."""
        if not committables:
            return {}
        epoch = EpochSpool.find(committables, context.spool_uri, context.hadoop)
        return {f.handle: epoch.path(f.handle) for f in epoch.unsent(committables)}

    dump = staticmethod(dump_committable)
    load = staticmethod(partial(load_committable, SpooledRows))
