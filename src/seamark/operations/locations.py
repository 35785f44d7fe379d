"""A location of ``format("seamark")``: what its log says, for `seamark explain --location DIR` and
`seamark info`, and its sink's open transactions and rows, for `txn` and `audit`.

A report reads the location alone: neither Spark nor the sink is asked.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seamark.api.declarations import DeclaredSink
from seamark.checkpoint.batch_log import UID, StoredLog
from seamark.checkpoint.envelope import load_record, storage_faults
from seamark.checkpoint.executions import ExecutionStore
from seamark.checkpoint.ledger import Ledger, LedgerEntry, Total, Totals
from seamark.checkpoint.store import JobIdentity
from seamark.datasource.guarantee import CONDITION
from seamark.datasource.location import Location, recorded_location
from seamark.files.location import storage_uri
from seamark.jobs.checkpoint_history import exists, open_storage
from seamark.model.errors import UserError
from seamark.operations.audit import epoch_column, epoch_range
from seamark.operations.offsets import read_options
from seamark.protocol.batches import Decided, newest_decision


@dataclass(frozen=True)
class DecidedBatch:
    """A batch that is final: its number, the id of Spark's query, when it was decided (seconds
    since 1970), its rows, the transactions or what stands for them, and whether their commit is
    proved. `rows_in_all` are those of all batches from `since` on; None in a log that an older
    version has written."""

    batch: int
    query: str
    at: float
    rows: int
    transactions: int
    committed: bool
    rows_in_all: int | None
    since: int


@dataclass(frozen=True)
class LocationReport:
    """A location's log. `open_tries`: those begun after the newest decision, with their times; what
    they have left open is aborted by the next try. `entries` are the kept ones' numbers."""

    uri: str
    name: str
    job_id: str
    decided: DecidedBatch | None
    open_tries: Mapping[int, float]
    entries: tuple[int, ...]

    guarantee: str = f"exactly-once into its sink, {CONDITION}"

    def to_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return asdict(self)


def read_location(path: str) -> LocationReport:
    """Read a location. Raises UserError if there is none, CorruptRecordError, and
    RecordNotStoredError for a storage that is away."""
    uri = storage_uri(path, "--location")
    files = open_storage(uri) if exists(uri) else None
    try:
        if files is None:
            raise FileNotFoundError
        with storage_faults(uri, "job.json", "read"):
            identity = load_record(files, "job", "job.json", JobIdentity.of)
            log = StoredLog(files)
            entries = log.entries()
            numbers = log.numbers()
    except FileNotFoundError:
        raise UserError(
            f'--location {path}: no query of format("seamark") has its log there; give the '
            "option location of the query, or the directory seamark in its checkpoint location"
        ) from None
    decided, batch = newest_decision(entries), None
    if decided is not None:
        total = decided.total
        batch = DecidedBatch(
            decided.batch,
            decided.query,
            decided.at,
            decided.part.rows,
            len(decided.part.committables),
            decided.committed,
            None if total is None else total.sums.rows,
            decided.batch if total is None else total.since,
        )
    tries = {number: entry.at for number, entry in sorted(entries.items()) if entry is not decided}
    return LocationReport(uri, identity.name, identity.job_id, batch, tries, tuple(numbers))


def open_at_sink(path: str, options: Path | None) -> Sequence[dict[str, Any]]:
    """Return the open transactions of a location's sink, as `txn list` does of a program's job.
    `options`: a file with the options that the location does not keep.

    Raises UserError, ConfigurationError, and AbortFailedError if the sink's system does not answer.
    """
    place = _load(path, options)
    transactions, now = place.open_transactions(), time.time()
    return [{"job": place.name, **one.to_json(now)} for one in transactions]


def _load(path: str, options: Path | None) -> Location:
    report = read_location(path)
    newest = ExecutionStore(open_storage(report.uri)).newest()
    if newest is None or newest.start.is_observed:
        raise UserError(
            f"--location {path}: no run of the query has left its options there: it was of an "
            "older version; start the query once"
        )
    place = recorded_location(newest.start, read_options(options, "--options"))
    if place.files.uri != report.uri:
        raise UserError(f"--location {path}: the query that writes there has {place.files.uri}")
    return place


def audit_location(
    path: str,
    options: Path | None,
    *,
    epochs: str = "",
    epoch_columns: Sequence[str] = (),
    shared: bool = False,
) -> dict[str, Any]:
    """Return the audit of a location's sink, as `audit` does of a program's job; its batches are
    the epochs. `options` as of `open_at_sink`. Raises UserError and ConfigurationError."""
    from seamark.verify.audit.one_job import Audited, AuditRequest, audit_job

    place = _load(path, options)
    decided = [entry for entry in place.log.kept().values() if isinstance(entry, Decided)]
    ours = [LedgerEntry(one.batch, one.generation, None, {UID: one.part}) for one in decided]
    count = sum(one.committed for one in decided)  # all but the newest one
    entries, undecided = ours[:count], ours[count:]
    totals = Totals(0, -1)
    if entries:
        total = decided[count - 1].total or Total(entries[-1].epoch + 1)
        totals = Totals(total.since, entries[-1].epoch, {UID: total})
    batches = [one.batch for one in decided]
    lacking = sorted({*range(min(batches, default=0), max(batches, default=0))} - {*batches})
    at = f"{place.files.uri}/{place.log.directory}"
    unreadable = dict.fromkeys(lacking, f"{at} has no sound entry of it")
    first, last = epoch_range(epochs)
    audited = Audited(
        place.job,
        place.identity,
        {UID: DeclaredSink(UID, place.sink, None, ())},
        {UID: place.rows_schema},
        Ledger(entries, totals, unreadable),
        undecided,
    )
    request = AuditRequest(first, last, (), dict(map(epoch_column, epoch_columns)), shared)
    return {"job": place.name, **audit_job(audited, request)}
