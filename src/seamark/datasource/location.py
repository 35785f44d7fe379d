"""The location of a data source's query: what its workers share, and the steps that they drive.

One `Location` for each query in a process, kept from batch to batch. Its committer is made anew for
each generation; the planning worker makes one only where there is something to settle.
"""

import hashlib
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from seamark.api.config import CheckpointConfig
from seamark.checkpoint.batch_log import (
    BELOW_CHECKPOINT,
    UID,
    StoredLog,
    add_location,
    identity_of,
    identity_of_job,
    locations_of,
)
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.executions import LOCATION as RECORDED
from seamark.checkpoint.executions import ExecutionStart, ExecutionStore
from seamark.checkpoint.flow_figures import CommitCounts, SinkCounts
from seamark.checkpoint.sink_commits import SinkCommits
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.spool import load
from seamark.checkpoint.storage_check import check_storage
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.checkpoint.transactions import (
    Judgement,
    OpenTransaction,
    StoredAttempt,
    find_open,
)
from seamark.contracts.sink import FilesSink, Lingering, TwoPhaseCommitSink
from seamark.datasource.columns import Projection
from seamark.datasource.guarantee import guarantee_of, require_apart
from seamark.datasource.options import (
    CHECKPOINT,
    LOCATION,
    QueryOptions,
    public_options,
    require_absolute,
    setting_of,
    sink_of_options,
)
from seamark.files import Directory, HadoopSettings, numbered, open_for_rows, shared_uri
from seamark.files import location as files_location
from seamark.model import failpoints
from seamark.model.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptRecordError,
    SeamarkError,
    UserError,
)
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.model.ignored import ignored
from seamark.model.job_graph import JobGraph, Vertex
from seamark.model.redaction import HIDDEN, Redactor, secrets_in
from seamark.model.schema import Column, Schema
from seamark.protocol import batches
from seamark.protocol.batches import Decided, Entry, Try
from seamark.protocol.ports import EpochRecord
from seamark.protocol.states import Seal
from seamark.protocol.verdicts import DriverState, Verdict, of_unstored

log = logging.getLogger(__name__)

COMMIT_S = 600.0
"""How long a commit may take: the next run commits what this one could not."""
OTHER_SINK = "If the query had another sink before, start it once with that one"
LOST = (
    f"{OTHER_SINK}. Else delete what the sink has of this batch, then start the query with a new "
    "location and the option adopt: it writes the batch again (docs/data-source.md)"
)
"""What an error says of lost transactions."""
SWEEP_S = 5.0
"""How often a query looks for what losing attempts of its tasks have left open; without batches it
goes on, ever more seldom, as a machine that was cut off may still write."""

_known: dict[frozenset[tuple[str, str]], "Location"] = {}


def open_location(options: Mapping[str, str]) -> "Location":
    """Return the location of the query with these options. Raises ConfigurationError."""
    key = frozenset(options.items())
    if key not in _known:
        _known[key] = Location(options)
    return _known[key]


def recorded_location(start: ExecutionStart, given: Mapping[str, str]) -> "Location":
    """Return the location of the query whose run has this record, to look at it; `given` are the
    options that the record has not, because of their secrets. Raises UserError."""
    kept = start.pages[RECORDED]
    options = {**kept["options"], **{name.lower(): text for name, text in given.items()}}
    if missing := sorted(name for name, text in options.items() if text == HIDDEN):
        raise UserError(
            f"the location keeps no options with secrets; give {', '.join(missing)} in a file of "
            "name=value lines: --options FILE"
        )
    place = Location(options)
    place.take(StructType.fromJson(kept["schema"]))
    return place


class Location:
    """One query's place, sink and log. Used by one thread at a time, but for its own sweeps."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        given = {name.lower(): value for name, value in options.items()}
        query = QueryOptions.of(given)
        self.sink: TwoPhaseCommitSink[Any] = sink_of_options(given)
        self.adopts, self.selected = query.adopts, query.selected
        self.hadoop = HadoopSettings(
            {setting_of(name): text for name, text in given.items() if name.startswith("fs.")}
        )
        self._checkpoint = checkpoint = query.checkpoint
        self._default = checkpoint and f"{checkpoint.rstrip('/')}/{BELOW_CHECKPOINT}"
        if query.location:
            require_absolute(LOCATION, query.location)
        elif checkpoint:
            require_absolute(CHECKPOINT, checkpoint)
        else:
            raise ConfigurationError(
                'format("seamark"): neither the option location nor checkpointLocation is given; '
                "the log of the query's decisions needs a directory that Spark's driver and "
                "executors share"
            )
        at = query.location or f"{self._default}"
        self._at = shared_uri(at, 'format("seamark"): location')
        if not self._at.startswith("/"):
            self.hadoop = (HadoopSettings.of_environment() or HadoopSettings()).under(self.hadoop)
        named_by = self._at if query.location or not checkpoint else checkpoint
        self.name = query.name or named_by.rstrip("/").rpartition("/")[2]
        self.rows = StructType()
        """The DataFrame's columns, by `take`; none in a task."""
        self._lock = threading.Lock()
        self._previous = 0
        self._sinks: _Sinks | None = None
        self._swept_at = 0.0
        self._newest: Decided | None = None
        """The batch that a worker was last called to commit: only its sweeps go on."""
        self._timer: threading.Timer | None = None

    @property
    def schema(self) -> Schema:
        """The DataFrame's columns, as sinks are told of them; () in a task."""
        return tuple(Column(f.name, f.dataType.simpleString()) for f in self.rows.fields)

    def take(self, rows: StructType) -> None:
        """Take the columns of a run's DataFrame, before its committer is made. A run with other
        columns in a worker that Spark has kept has to be looked at anew."""
        before, self.rows = self.schema, rows
        if before not in ((), self.schema):
            self._begin_anew()

    def _begin_anew(self) -> None:
        with self._lock:
            if self._sinks is not None:
                self._sinks.close()
            self._sinks, self._newest, self._previous = None, None, 0
            for name in ("identity", "job", "log", "_own_files"):
                self.__dict__.pop(name, None)

    @cached_property
    def files(self) -> Directory:
        """The directory of the location."""
        return open_for_rows(self._at, self.hadoop)

    @cached_property
    def log(self) -> StoredLog:
        """The log in it."""
        return StoredLog(self.files, self.identity)

    @cached_property
    def identity(self) -> JobIdentity:
        """The location's identity; written at its first use."""
        return identity_of(self.files, self.name)

    @property
    def job_id(self) -> str:
        """The job id by which the sink's transactions are named."""
        return self.identity.job_id

    @cached_property
    def _own_files(self) -> Directory:
        """The directory of this query's log, in which nobody else deletes anything."""
        at = f"{self._at.rstrip('/')}/{self.identity.log_directory}".rstrip("/")
        return open_for_rows(at, self.hadoop)

    @cached_property
    def job(self) -> CheckpointedJob:
        """The query, as its sink's committer is told of it."""
        store = CheckpointStore(self._own_files, self._own_files)
        checkpoint = CheckpointConfig(storage=self.files.uri)
        schemas = {UID: self.schema}
        return CheckpointedJob(
            self.name, {UID: self.sink}, store, checkpoint, schemas, hadoop=self.hadoop
        )

    @property
    def spool_uri(self) -> str:
        """The sink's spool, beside the log."""
        return self.job.store.spool_uri(UID)

    # --- in the worker that plans a batch

    def begin(self) -> Try:
        """Begin a try of the next batch. Called before its tasks; settles what a dead run left.
        The location may have been deleted, and begun anew, since this worker's last batch."""
        identity = identity_of(self.files, self.name)
        if self.__dict__.get("identity", identity).job_id != identity.job_id:
            self._begin_anew()
        self.identity = identity
        # Of a batch nobody knows how long it takes: see `_require_open`.
        context = self.job.context(UID, 0, self.identity)
        self.sink.check_transaction_scope(
            replace(context, checkpoint_interval_s=0.0, checkpoint_timeout_s=0.0)
        )
        sinks = _Sinks(self)
        try:
            this = failpoints.drive(batches.begin(self.log, sinks, self._previous, self._check))
        finally:
            sinks.close()
        self._previous = this.number
        if this.generation == this.number:
            with ignored("the record of the query's run"):
                self._record_run()
        return this

    def _check(self, entries: Mapping[int, Entry]) -> None:
        """Raise CheckpointError for a checkpoint of another moment, before anything of this run is
        written; PreflightError for a storage that cannot hold a log. A query that does not name its
        checkpoint is looked at by its tasks alone, as every batch is (`Try.writes`).

        In each batch: Spark may have kept this worker from another run, which a mistaken start must
        not fence."""
        if not entries:
            require_apart(self.sink, filter(None, (self._at, self._checkpoint)))
            check_storage(self.files)
        spark = self._spark_files
        if spark is None:
            return
        try:
            query = json.loads(spark.read("metadata"))["id"]
            planned = max(numbered(spark.list("offsets"), ""), default=-1)
        except (FileNotFoundError, ValueError, KeyError):  # Spark's own words are for what it lacks
            return
        if planned < 0 or spark.exists(f"commits/{planned}"):
            raise CheckpointError(
                'format("seamark"): Spark plans no micro-batch: the trigger is continuous, with '
                "which it never commits a Python data source; use trigger(processingTime=…). Or "
                "another run of the query is ahead of this one: end one of the two"
            )
        decided = batches.newest_decision(entries)
        writes = Try(0, 0, decided).writes(planned, query, adopts=self.adopts)
        if decided and not writes and decided.plan not in ("", self._plan(planned)):
            raise CheckpointError(
                f"Spark has planned batch {planned} anew, and it is decided already, with the "
                "rows of another plan: the checkpoint was restored alone, or a failing machine has "
                f"lost its entry offsets/{planned}. Take checkpoint and location from one moment, "
                "or delete what the sink has of this batch and give a new location and the option "
                "adopt: it writes the batch again"
            )
        if not entries and isinstance(self.sink, FilesSink):
            _require_other_files(self.sink.example_file, spark)
        claims = decided is None and self.adopts
        self._take_over_from(spark, planned, query, looks=writes and not claims)

    def _take_over_from(self, spark: Directory, batch: int, query: str, *, looks: bool) -> None:
        """Record that the query's location is this one from now on, if it was another. Raises
        CheckpointError if another one has decided the batch that this one would write.

        `looks`: not if it would not, or if the query says that it has to be written all the same. A
        deleted location binds nobody, nor the one of which this is a copy, whose query goes on."""
        default = shared_uri(self._default, 'format("seamark"): checkpointLocation')
        own = "" if self._at == default else self._at
        while (places := locations_of(spark))[-1] != own:
            for at in sorted({*places} - {own}) if looks else ():
                log = StoredLog(open_for_rows(at or default, self.hadoop))
                decided = batches.newest_decision(log.entries())
                if decided is None or decided.query != query or decided.batch < batch:
                    continue
                if own in places or log.directory != self.log.directory:
                    raise CheckpointError(
                        f"batch {batch}, which Spark runs, is decided in the location "
                        f"{at or default}, which the query had last: under this one it would be "
                        "written twice. Give that location again; if you have deleted what the "
                        "sink has of this batch, delete that location too"
                    )
            if add_location(spark, len(places), own):
                return

    @cached_property
    def _spark_files(self) -> Directory | None:
        """Spark's checkpoint, if the query names it."""
        if not self._checkpoint:
            return None
        try:
            at = shared_uri(self._checkpoint, 'format("seamark"): checkpointLocation')
            return open_for_rows(at, self.hadoop)
        except SeamarkError:  # a store for which the location stands elsewhere
            return None

    def _plan(self, batch: int) -> str:
        """Return what tells Spark's plan of a batch from any other: it has the time in it."""
        if self._spark_files is None:
            return ""
        try:
            return hashlib.sha256(self._spark_files.read(f"offsets/{batch}")).hexdigest()
        except FileNotFoundError:
            return ""

    def _record_run(self) -> None:
        """Record for people, once for each of Spark's drivers, that it runs the query."""
        hide = Redactor(secrets_in({UID: self.sink})).everywhere
        report = guarantee_of(self.sink)
        sink = Vertex(UID, "sink", self.sink.describe(), guarantee=report.guarantee.value)
        kept = {
            "options": public_options(self.options, self.sink),
            "schema": self.rows.jsonValue(),
        }
        start = ExecutionStart(
            job_id=self.job_id,
            name=self.identity.name,
            host=socket.gethostname(),
            pid=os.getppid(),  # Spark's own, or that of its Python workers: it lives as long
            started_at=time.time(),
            rest_url="",
            graph=hide(JobGraph((sink,)).to_record()),
            pages={"guarantees": hide(report.to_json()), RECORDED: kept},
        )
        store = ExecutionStore(self.files)
        newest = store.newest()
        if newest is None or replace(newest.start, started_at=start.started_at) != start:
            store.begin(start)

    # --- beside the query, for people

    @property
    def rows_schema(self) -> pa.Schema:
        """The columns of the rows that the sink's writers get."""
        rows = to_arrow_schema(self.rows)
        return Projection.of(self.sink, self.schema, selected=self.selected)(
            pa.RecordBatch.from_pylist([], rows)
        ).schema

    def open_transactions(self) -> Sequence[OpenTransaction]:
        """Return the sink's open transactions, with the log's verdicts. Changes nothing."""
        entries = self.log.entries()
        decided = batches.newest_decision(entries)
        newest = max((entry.generation for entry in entries.values()), default=0)
        stored = {}
        if decided is not None and not decided.committed:
            own = decided.generation
            record = EpochRecord(frozenset({own}), {own: Seal.COMMIT})
            for committable in (load(self.sink, data)[0] for data in decided.part.committables):
                attempt = StoredAttempt(decided.batch, own, record, committable)
                stored[committable.handle] = attempt

        def judge(uid: str, handle: str, generation: int) -> Judgement:
            if (at := stored.get(handle)) is not None:
                return at, Verdict.MUST_COMMIT
            return None, of_unstored(generation, [newest], DriverState.UNKNOWN)

        sinks = _Sinks(self)
        try:
            sinks.attach(newest)
            return find_open(sinks.commits, judge)
        finally:
            sinks.close()

    # --- in the worker that commits

    def commit(self, mine: Decided, job_id: str, opened_at: float) -> None:
        """Decide the batch of the location's job and commit it; then abort what its losing attempts
        left open, of which a failure is told and ends nothing. `opened_at`: when the first of its
        transactions was opened."""
        self._require_open(mine, time.time() - opened_at)
        if "identity" not in self.__dict__ or job_id != self.job_id:
            self._begin_anew()
            self.identity = identity_of_job(self.files, job_id)
        mine = replace(mine, plan=self._plan(mine.batch))
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._newest = mine
            if self._sinks is None or self._sinks.generation != mine.generation:
                if self._sinks is not None:
                    self._sinks.close()
                self._sinks = _Sinks(self)
                self._sinks.attach(mine.generation)
            failpoints.drive(batches.commit(self.log, self._sinks, mine))
            if time.monotonic() - self._swept_at > SWEEP_S:
                self._sweep(mine)
            with ignored("the deletion of old entries of the log"):
                self.log.tidy()
            self._sweep_soon(mine, time.monotonic())

    def _require_open(self, mine: Decided, open_s: float) -> None:
        """Raise SeamarkError if the sink's system drops the batch's transactions, or soon will:
        once the batch is decided, nothing would write its rows again."""
        limit_s = self.sink.transaction_timeout_s
        if mine.part.committables and not self.sink.spool and limit_s and open_s > 0.9 * limit_s:
            raise SeamarkError(
                f"batch {mine.batch}: its first rows were written {open_s:.0f} s ago, and "
                f"{self.sink.describe()} drops a transaction after transaction_timeout, "
                f"{limit_s:g} s; nothing is decided. Give a longer transaction_timeout (up to the "
                'broker\'s transaction.max.timeout.ms), or spool "true"; for later batches also '
                "less at once, as by maxOffsetsPerTrigger"
            )

    def _sweep_soon(self, mine: Decided, since: float) -> None:
        pause_s = max(SWEEP_S, (time.monotonic() - since) / 10)
        self._timer = threading.Timer(pause_s, self._sweep_later, [mine, since])
        self._timer.daemon = True
        self._timer.start()

    def _sweep_later(self, mine: Decided, since: float) -> None:
        with self._lock:
            if self._newest is mine:  # else a commit has come first
                self._sweep(mine)
                self._sweep_soon(mine, since)

    def _sweep(self, mine: Decided) -> None:
        assert self._sinks is not None
        self._swept_at = time.monotonic()
        self._sinks.once = True
        try:
            failpoints.drive(batches.sweep(self.log, self._sinks, mine))
        except Exception as error:  # only readers wait for these; the next sweep tries again
            log.warning("transactions of losing attempts stay open for now: %s", error)
        finally:
            self._sinks.once = False


def _require_other_files(example: str, spark: Directory) -> None:
    """Raise ConfigurationError if the query has read its first files where its sink would put its
    own. Of a query's sources Spark tells a data source no more than the checkpoint holds."""

    def place(file: str) -> str:
        return files_location.place_of(files_location.Location.parse(file, "path").uri)

    uri = re.escape(place(example).rpartition("/")[0])
    directory = re.compile(uri.replace(r"=\*", "=[^/]*"))
    for source in spark.list("sources"):
        read: list[str] = []
        with ignored("a look at the query's first files"):  # of another kind of source
            lines = spark.read(f"sources/{source}/0").splitlines()[1:]
            paths = [unquote(json.loads(line)["path"]) for line in lines]
            read = [place(path) for path in paths]
        for file in read:
            if directory.fullmatch(file.rpartition("/")[0]):
                raise ConfigurationError(
                    Finding(
                        FindingCode.SK007,
                        'format("seamark")',
                        f"the query reads {file}, in the directory to which its sink would write: "
                        "each batch's rows would come back as input, without an end",
                        "write to a directory that the query does not read, with a new checkpoint",
                        Severity.ERROR,
                    )
                )


class _Sinks:
    """The protocol's `BatchSink` on the sink's committer."""

    def __init__(self, place: Location) -> None:
        self._place = place
        self.commits = SinkCommits(
            place.job, lambda uri: place.job.store.files, SinkCounts(CommitCounts), COMMIT_S, LOST
        )
        self.generation = 0
        self.once = False
        """Whether to ask the system once alone: nothing but readers waits for the answer."""

    def attach(self, generation: int) -> None:
        """Make the committer of a generation."""
        self.generation = generation
        self.commits.attach(generation, self._place.identity)

    def take_over(self, generation: int) -> None:
        self.attach(generation)
        self.commits.preflight()

    def commit(self, decided: Decided) -> None:
        part: SinkEpoch = decided.part
        batch, generation = decided.batch, decided.generation
        self.commits.remember(batch, generation, {UID: part})
        try:
            self.commits.commit(UID, batch, generation)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"batch {batch}, decided: {error}. {OTHER_SINK}") from None
        self.commits.forget(batch, generation)

    def forget(self, decided: Decided) -> None:
        self._place.job.forget_rows(decided.batch)

    def lingering(self, below: int) -> Sequence[Lingering[Any]]:
        listed = self.commits.list_lingering(UID, once=self.once)
        return [lingering for lingering in listed if lingering.generation < below]

    def abort(self, left: Sequence[Lingering[Any]]) -> None:
        if left:
            self.commits.abort_listed(
                UID, [lingering.committable for lingering in left], once=self.once
            )

    def close(self) -> None:
        self.commits.close()
