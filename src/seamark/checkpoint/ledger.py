"""The ledger: what each decided epoch has given to each sink, kept longer than the epoch's records.

`prepared` records hold each attempt's sums. Pages (`ledger/<last epoch>.json`, docs/FORMAT.md) keep
those of the decided attempts, ten epochs in one file. The coordinator's upkeep writes them before
the store deletes the epochs' records; `verify/audit` alone reads them, so a damaged one stops no
job.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seamark.checkpoint.envelope import load_record
from seamark.checkpoint.garbage import LEAST_RECORDS
from seamark.checkpoint.row_hash import NO_ROWS, RowSums
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.spark_files import read_log
from seamark.checkpoint.store import LEDGER, CheckpointStore
from seamark.files import numbered
from seamark.model.errors import CorruptRecordError
from seamark.model.records import read_as, record_of

log = logging.getLogger(__name__)

PAGE_EPOCHS = LEAST_RECORDS
"""Epochs committed between two pages: not more than the store keeps records of."""
KEPT_EPOCHS = 1000
"""The newest epochs with pages of their own; older ones live on in the totals."""


@dataclass(frozen=True)
class LedgerEntry:
    """One decided epoch: its decided attempt's generation, the sources' end offsets as in Spark's
    offset log (None: not known any more), and the sinks' parts by uid."""

    epoch: int
    generation: int
    sources: list[Any] | None
    sinks: Mapping[str, SinkEpoch]


@dataclass(frozen=True)
class Total:
    """The sums of one sink's rows in all epochs from `since` on."""

    since: int
    sums: RowSums = NO_ROWS

    def after(self, epoch: int, part: SinkEpoch) -> Total:
        """Return the total with one more epoch; it starts anew after an epoch without a ledger."""
        if part.sums is None:
            return Total(epoch + 1)
        return Total(self.since, self.sums + part.sums)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"since": self.since, "rows": self.sums.rows, "hash": self.sums.hash}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Total:
        """Read the stored form; raises KeyError, TypeError or ValueError."""
        return Total(body["since"], RowSums.of(body["rows"], body["hash"]))


@dataclass(frozen=True)
class Totals:
    """The totals of all sinks up to and with epoch `last`; a sink not named has had no row."""

    since: int
    last: int
    of_sinks: Mapping[str, Total] = field(default_factory=dict)

    def of(self, uid: str) -> Total:
        """Return one sink's total."""
        return self.of_sinks.get(uid, Total(self.since))

    def with_epochs(self, entries: Sequence[LedgerEntry], unreadable: Collection[int]) -> Totals:
        """Return the totals with the next epochs, anew after the last one among them that cannot be
        read."""
        gap = max((epoch for epoch in unreadable if epoch > self.last), default=-1)
        since, last, of_sinks = self.since, self.last, dict(self.of_sinks)
        if gap >= 0:
            since, last, of_sinks = gap + 1, gap, {}
        for entry in (entry for entry in entries if entry.epoch > last):
            for uid, part in entry.sinks.items():
                of_sinks[uid] = of_sinks.get(uid, Total(since)).after(entry.epoch, part)
            last = entry.epoch
        return Totals(since, last, of_sinks)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "since": self.since,
            "sinks": {uid: total.to_json() for uid, total in self.of_sinks.items()},
        }

    @staticmethod
    def from_json(last: int, body: Mapping[str, Any]) -> Totals:
        """Read the stored form; raises KeyError, TypeError or ValueError."""
        sinks = {uid: Total.from_json(total) for uid, total in body["sinks"].items()}
        return Totals(body["since"], last, sinks)


class LedgerWriter:
    """Writes the pages of one driver. Used by one thread."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._noted: dict[int, LedgerEntry] = {}
        self._totals: Totals | None = None

    def committed(self, epoch: int, generation: int, sinks: Mapping[str, SinkEpoch]) -> None:
        """Note a committed epoch, and do as `catch_up`."""
        if len(self._noted) < PAGE_EPOCHS:  # else no page can be written: their records stay
            self._noted[epoch] = LedgerEntry(epoch, generation, _sources(self._store, epoch), sinks)
        self.catch_up(epoch)

    def catch_up(self, epoch: int) -> None:
        """Write a page when there are enough epochs for one, up to `epoch`, the last committed one.
        On return the ledger holds every epoch of which the store may delete the records, but for
        those with damaged records."""
        totals = self._totals = self._totals or _newest_totals(self._store)
        if epoch - totals.last < PAGE_EPOCHS:
            return
        wanted = [number for number in self._store.epochs() if totals.last < number <= epoch]
        unreadable: dict[int, str] = {}
        entries = _stored_entries(self._store, wanted, self._noted, unreadable)
        totals = totals.with_epochs(entries, unreadable)
        _write_page(self._store, entries, totals)
        self._totals = totals
        self._noted.clear()


class Ledger(NamedTuple):
    """The ledger as far as it can be read: its epochs, oldest first, the totals up to the last
    committed one, and why each of the other epochs cannot be read."""

    entries: Sequence[LedgerEntry]
    totals: Totals
    unreadable: Mapping[int, str]


def read_ledger(store: CheckpointStore) -> Ledger:
    """Return the ledger. A driver may write it meanwhile."""
    unreadable: dict[int, str] = {}
    # Before the pages: records deleted in between are in a page by then.
    own = _stored_entries(store, store.epochs(), {}, unreadable)
    entries = {entry.epoch: entry for entry in own}
    totals = _newest_totals(store)
    before = totals.last - KEPT_EPOCHS
    for page in _pages(store):
        with contextlib.suppress(FileNotFoundError):  # too old by now
            try:
                entries |= {entry.epoch: entry for entry in _read_page(store, page)[1]}
            except CorruptRecordError as error:
                first = max(before + 1, page - PAGE_EPOCHS + 1, store.first_epoch())
                unreadable |= dict.fromkeys(range(first, page + 1), str(error))
        before = page
    for epoch in entries:
        unreadable.pop(epoch, None)
    shown = [entries[epoch] for epoch in sorted(entries)]
    later = [entry for entry in shown if entry.epoch > totals.last]
    return Ledger(shown, totals.with_epochs(later, unreadable), unreadable)


def _newest_totals(store: CheckpointStore) -> Totals:
    """Return the newest page's totals; if it is damaged, they begin anew after it."""
    pages = _pages(store)
    if not pages:
        first = min(store.epochs(), default=store.first_epoch())
        return Totals(first, first - 1)
    try:
        return _read_page(store, pages[-1])[0]
    except CorruptRecordError as error:
        log.warning("%s: the ledger's totals begin anew after epoch %d", error, pages[-1])
        return Totals(pages[-1] + 1, pages[-1])


def _sources(store: CheckpointStore, epoch: int) -> list[Any] | None:
    try:
        return read_log(store.spark_files, f"offsets/{epoch}")[1:]
    except Exception as error:  # Spark may have deleted it; an audit can do without
        log.info("offsets of epoch %d: %s", epoch, error)
        return None


def _stored_entries(
    store: CheckpointStore,
    epochs: Sequence[int],
    noted: Mapping[int, LedgerEntry],
    unreadable: dict[int, str],
) -> list[LedgerEntry]:
    """Return the entries of committed epochs, from memory if they are `noted`, else from their own
    records; those with damaged records go into `unreadable`, with the reason."""
    entries = []
    for epoch in epochs:
        entry = noted.get(epoch)
        try:
            if entry is None and (generation := store.epoch(epoch).committed) is not None:
                with contextlib.suppress(FileNotFoundError):  # restored, or deleted meanwhile
                    sinks = store.read_prepared(epoch, generation)
                    entry = LedgerEntry(epoch, generation, _sources(store, epoch), sinks)
        except CorruptRecordError as error:
            log.warning("%s: epoch %d is not in the ledger", error, epoch)
            unreadable[epoch] = str(error)
        if entry is not None:
            entries.append(entry)
    return entries


def _pages(store: CheckpointStore) -> list[int]:
    return numbered(store.files.list(LEDGER), ".json")


def _read_page(store: CheckpointStore, last: int) -> tuple[Totals, list[LedgerEntry]]:
    def load(body: dict[str, Any]) -> tuple[Totals, list[LedgerEntry]]:
        entries = [read_as(LedgerEntry, entry, newer=True) for entry in body["epochs"]]
        return Totals.from_json(last, body["totals"]), entries

    return load_record(store.files, "ledger", f"{LEDGER}/{last}.json", load)


def _write_page(store: CheckpointStore, entries: Sequence[LedgerEntry], totals: Totals) -> None:
    body = {"epochs": record_of(entries), "totals": totals.to_json()}
    store.write_ledger_page(totals.last, body)
    for page in _pages(store):
        if page <= totals.last - KEPT_EPOCHS:
            store.files.delete(f"{LEDGER}/{page}.json")
