"""Audits a job's sinks, without a run of it; and a declared job's answer to `seamark audit`.

A job may run meanwhile: epochs committed after the audit began are not judged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from seamark.api.declarations import DeclaredSink, JobDeclaration
from seamark.checkpoint.accepted_losses import read_losses
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.ledger import Ledger, LedgerEntry, read_ledger
from seamark.checkpoint.spool import load, read_rewrites
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.contracts.read_back import UpsertingSink
from seamark.jobs.checkpoint_history import current_directory
from seamark.jobs.job_transactions import checkpointed_job
from seamark.model.errors import UserError
from seamark.model.records import read_as
from seamark.run.dead_letters import NO_LETTERS, for_sink
from seamark.savepoints.restore.origin import open_job
from seamark.spark.plans import selected
from seamark.spark.spark_versions import arrow_schema
from seamark.verify.audit.by_key import KeyAudit, LastWrites
from seamark.verify.audit.cells import Ledgered
from seamark.verify.audit.findings import Fault, Finding, FoundRow, SinkResult
from seamark.verify.audit.one_sink import Question, SinkAudit


@dataclass(frozen=True)
class AuditRequest:
    """What a user asks for. `first` and `last` are epochs, None for all; `sinks` uids, none for
    all. `epoch_columns` are by uid. `shared`: other programs write to the targets too."""

    first: int | None = None
    last: int | None = None
    sinks: Sequence[str] = ()
    epoch_columns: Mapping[str, str] | None = None
    shared: bool = False


@dataclass(frozen=True)
class Audited:
    """A job as its audit needs it: its sinks with the columns of the rows that their writers get,
    by uid; its ledger, and the attempts of epochs not in the ledger yet, of which a reader may see
    rows soon."""

    job: CheckpointedJob
    identity: JobIdentity
    sinks: Mapping[str, DeclaredSink]
    schemas: Mapping[str, pa.Schema]
    ledger: Ledger
    undecided: Sequence[LedgerEntry]


def audit_job(job: Audited, request: AuditRequest) -> dict[str, Any]:
    """Return the audit of a job, for people and programs. Raises UserError if there is no ledger,
    or no such sink or epoch."""
    audit = _JobAudit(job, request)
    results = audit.run()
    return {
        "epochs": [audit.first, audit.last],
        "sinks": [result.to_json() for result in results],
        "findings": sum(len(result.findings) for result in results),
    }


def answer_audit(
    spark: SparkSession, declared: JobDeclaration, storage: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Answer to a request of `seamark audit`."""
    request = read_as(AuditRequest, asked, newer=True)
    return audit_job(declared_job(spark, declared, storage), request)


def declared_job(spark: SparkSession, declared: JobDeclaration, storage: str) -> Audited:
    """Return a declared job with its checkpoints in `storage`. Raises UserError if there are
    none."""
    directory = f"{storage}/{current_directory(storage, declared.directory)}"
    store = open_job(spark, directory, declared.spark_directory)
    try:
        identity = store.open_existing(declared.name)
    except FileNotFoundError:
        raise UserError(
            f"{store.uri} holds no checkpoint of job {declared.name!r}: it has never run with "
            "this storage, so there is nothing to audit"
        ) from None
    ledger = read_ledger(store)
    return Audited(
        checkpointed_job(spark, declared, store),
        identity,
        declared.sinks,
        {uid: _schema(sink) for uid, sink in declared.sinks.items()},
        ledger,
        [*_undecided(store, ledger)],
    )


def _undecided(store: CheckpointStore, ledger: Ledger) -> Iterator[LedgerEntry]:
    last = max((entry.epoch for entry in ledger.entries), default=-1)
    for epoch in store.epochs():
        if epoch > last:
            for generation in store.epoch(epoch).prepared:
                yield LedgerEntry(epoch, generation, None, store.read_prepared(epoch, generation))


class _JobAudit:
    def __init__(self, audited: Audited, request: AuditRequest) -> None:
        self._audited, self._request = audited, request
        self._store = store = audited.job.store
        self._sinks = audited.sinks
        if unknown := {*request.sinks, *(request.epoch_columns or {})} - {*self._sinks}:
            raise UserError(
                f"there is no sink {min(unknown)!r}; there are {', '.join(self._sinks)}"
            )
        self._entries, self._totals, self._unreadable = audited.ledger
        if not self._entries:
            raise UserError(f"{store.uri}: no epoch is committed, so there is nothing to audit")
        kept = (self._entries[0].epoch, self._entries[-1].epoch)
        self.first = kept[0] if request.first is None else request.first
        self.last = kept[1] if request.last is None else request.last
        if not (kept[0] <= self.first <= self.last <= kept[1]):
            raise UserError(
                f"--epochs {self.first}..{self.last}: the ledger has the epochs "
                f"{kept[0]} to {kept[1]}"
            )

    def run(self) -> list[SinkResult]:
        """Audit the sinks, then compare those with the same rows."""
        chosen = self._request.sinks or list(self._sinks)
        audits = {uid: self._audit_of(self._sinks[uid]) for uid in chosen}
        for audit in audits.values():
            audit.run()
            audit.look_closer()
        twins = list(self._twins(audits))
        for uid, audit in audits.items():
            known: dict[int, FoundRow] = {}
            for a, b in twins:
                if uid in (a, b) and (hashes := audit.missing_hashes() - {*known}):
                    known |= audits[b if uid == a else a].look_for(hashes)
            audit.tell(known)
        for a, b in twins:
            self._compare(audits, a, b)
        for note in _not_compared(self._unreadable):
            for audit in audits.values():
                audit.result.notes.append(note)
        for loss in read_losses(self._store.files):
            if loss.sink in audits:
                audits[loss.sink].result.notes.append(f"accepted: {loss}")
        return [audit.result for audit in audits.values()]

    def _audit_of(self, declared: DeclaredSink) -> SinkAudit | KeyAudit:
        question, sink = self._question(declared), declared.sink
        if not (isinstance(sink, UpsertingSink) and sink.keys):
            return SinkAudit(question)
        if question.epoch_column:
            raise UserError(
                f"--epoch-column {declared.uid}={question.epoch_column}: {sink.describe()} is "
                "compared by its keys; leave the option out"
            )
        asked = (self.first, self.last)
        since = max(self._unreadable, default=-1) + 1
        undecided = iter(self._audited.undecided)
        writes = LastWrites(declared.uid, self._entries, undecided, asked, since)
        return KeyAudit(question, writes, self._incomplete(declared.uid))

    def _question(self, declared: DeclaredSink) -> Question:
        uid, sink = declared.uid, declared.sink
        ledgered = Ledgered()
        rewrites = read_rewrites(self._store.files, uid, sink)
        for entry in [*self._entries, *self._audited.undecided]:
            judged = self.first <= entry.epoch <= self.last
            part = entry.sinks.get(uid)
            if part is not None:
                committables = [load(sink, data)[0] for data in part.committables]
                again = rewrites.get(entry.epoch, ())
                ledgered.add(entry, uid, committables, again, judged=judged)
        total, why = self._totals.of(uid), ""
        incomplete = self._incomplete(uid)
        whole = self._request.first is None and self._request.last is None
        if not whole:
            why = "the target does not tell which epoch a row is of, so --epochs cannot be obeyed"
        elif incomplete:
            why = f"the target tells nothing of a row's writer, and {incomplete}"
        foreign = "other programs write there (--shared)" if self._request.shared else incomplete
        known = bool(ledgered.committables) or not any(e.rows for e in ledgered.epochs.values())
        columns = self._request.epoch_columns or {}
        return Question(
            uid,
            sink,
            self._audited.job.context(uid, 0, self._audited.identity),
            self._audited.schemas[uid],
            ledgered,
            None if why else total,
            why,
            columns.get(uid, ""),
            known and uid not in {one.dead_letters_of for one in self._sinks.values()},
            foreign,
        )

    def _incomplete(self, uid: str) -> str:
        """Return why the target may have rows of this job that the ledger does not know; "" if it
        cannot."""
        identity, first = self._audited.identity, self._entries[0].epoch
        if identity.restored_from is not None:
            return "the job was restored: rows of the job before it are in no ledger here"
        if self._unreadable:
            return f"the ledger of epoch {min(self._unreadable)} cannot be read"
        since = max(self._totals.of(uid).since, self._totals.since)
        if since > identity.first_epoch:
            return f"the ledger begins at epoch {since}, not at the job's first"
        if first > identity.first_epoch and not (self._request.epoch_columns or {}).get(uid):
            return f"transactions of epochs before {first} are not kept any more"
        return ""

    def _twins(self, audits: Mapping[str, SinkAudit | KeyAudit]) -> Iterator[tuple[str, str]]:
        """Yield the pairs of sinks that are given the same rows: of the same columns, and with the
        same sums in most epochs."""
        for a, b in combinations(audits, 2):
            if _columns(audits[a].schema) == _columns(audits[b].schema):
                same = Counter(_sums(entry, a) == _sums(entry, b) for entry in self._entries)
                if same[True] > same[False]:
                    yield a, b

    def _compare(self, audits: Mapping[str, SinkAudit | KeyAudit], a: str, b: str) -> None:
        for entry in self._entries:
            if self.first <= entry.epoch <= self.last and _sums(entry, a) != _sums(entry, b):
                ours, other = entry.sinks.get(a), entry.sinks.get(b)
                rows = (ours.rows if ours else 0) - (other.rows if other else 0)
                place = f"epoch {entry.epoch}, beside sink {b}"
                finding = Finding(Fault.SINKS_DIFFER, a, entry.epoch, abs(rows), place)
                audits[a].result.findings.append(finding)


def _not_compared(unreadable: Mapping[int, str]) -> Iterator[str]:
    """Yield a line for each damaged file of the ledger, with the epochs that it was for."""
    for why, epochs in groupby(sorted(unreadable), unreadable.__getitem__):
        first, *others = epochs
        which = f"epochs {first} to {others[-1]}" if others else f"epoch {first}"
        yield f"{which} cannot be compared: {why}"


def _sums(entry: LedgerEntry, uid: str) -> Any:
    part = entry.sinks.get(uid)
    return None if part is None else part.sums


def _columns(schema: pa.Schema) -> list[tuple[str, str]]:
    return sorted((field.name, str(field.type)) for field in schema)


def _schema(declared: DeclaredSink) -> pa.Schema:
    """Return the columns of the rows that the sink's writer gets."""
    if declared.dead_letters_of:
        return for_sink(declared.sink, NO_LETTERS).schema
    return arrow_schema(selected(declared).schema, "UTC")
