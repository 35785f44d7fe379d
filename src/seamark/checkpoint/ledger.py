"""The ledger: what each decided epoch has given to each sink, kept longer than the epoch's records.

`prepared` records hold each attempt's sums. Pages (`ledger/<last epoch>.json`, docs/FORMAT.md) keep
those of the decided attempts, ten epochs in one file. The coordinator's commit thread writes them
before the store deletes the epochs' records; `verify/audit` reads them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.checkpoint.envelope import load_record
from seamark.checkpoint.row_hash import NO_ROWS, RowSums
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.spark_files import read_log
from seamark.checkpoint.store import LEAST_RECORDS, LEDGER, CheckpointStore

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
    sources: Sequence[Any] | None
    sinks: Mapping[str, SinkEpoch]

    def to_json(self) -> dict[str, Any]:
        """Return its stored form."""
        return {
            "epoch": self.epoch,
            "generation": self.generation,
            "sources": self.sources,
            "sinks": {uid: part.to_json() for uid, part in self.sinks.items()},
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> LedgerEntry:
        """Read the stored form; raises KeyError, TypeError or ValueError."""
        sinks = {uid: SinkEpoch.from_json(part) for uid, part in body["sinks"].items()}
        return LedgerEntry(body["epoch"], body["generation"], body["sources"], sinks)


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


@dataclass
class Totals:
    """The totals of all sinks up to and with epoch `last`; a sink not named has had no row."""

    since: int
    last: int
    of_sinks: dict[str, Total] = field(default_factory=dict)

    def of(self, uid: str) -> Total:
        """Return one sink's total."""
        return self.of_sinks.get(uid, Total(self.since))

    def add(self, entry: LedgerEntry) -> None:
        """Add the next epoch."""
        for uid, part in entry.sinks.items():
            self.of_sinks[uid] = self.of(uid).after(entry.epoch, part)
        self.last = entry.epoch

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "since": self.since,
            "sinks": {
                uid: {"since": total.since, "rows": total.sums.rows, "hash": total.sums.hash}
                for uid, total in self.of_sinks.items()
            },
        }

    @staticmethod
    def from_json(last: int, body: Mapping[str, Any]) -> Totals:
        """Read the stored form; raises KeyError, TypeError or ValueError."""
        sinks = {
            uid: Total(total["since"], RowSums.of(total["rows"], total["hash"]))
            for uid, total in body["sinks"].items()
        }
        return Totals(body["since"], last, sinks)


class LedgerWriter:
    """Writes the pages of one driver. Used by the commit thread."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._noted: dict[int, LedgerEntry] = {}
        self._totals: Totals | None = None

    def committed(self, epoch: int, generation: int, sinks: Mapping[str, SinkEpoch]) -> None:
        """Note a committed epoch, and do as `catch_up`."""
        self._noted[epoch] = _entry(self._store, epoch, generation, sinks)
        self.catch_up(epoch)

    def catch_up(self, epoch: int) -> None:
        """Write a page when there are enough epochs for one, up to `epoch`, the last committed one.
        On return the ledger holds every epoch of which the store may delete the records."""
        totals = self._totals = self._totals or _newest_totals(self._store)
        if epoch - totals.last < PAGE_EPOCHS:
            return
        entries = [
            self._noted.pop(number, None) or _stored_entry(self._store, number)
            for number in self._store.epochs()
            if totals.last < number <= epoch
        ]
        found = [entry for entry in entries if entry is not None]
        for entry in found:
            totals.add(entry)
        self._noted.clear()
        _write_page(self._store, found, totals)


def read_ledger(store: CheckpointStore) -> tuple[list[LedgerEntry], Totals]:
    """Return the ledger's epochs, oldest first, and the totals up to the last committed one. A
    driver may write it meanwhile. Raises CorruptRecordError."""
    # Before the pages: records deleted in between are in a page by then.
    own = [_stored_entry(store, epoch) for epoch in store.epochs()]
    entries = {entry.epoch: entry for entry in own if entry is not None}
    totals = _newest_totals(store)
    for page in _pages(store):
        with contextlib.suppress(FileNotFoundError):  # too old by now
            entries |= {entry.epoch: entry for entry in _read_page(store, page)[1]}
    found = [entries[epoch] for epoch in sorted(entries)]
    for entry in found:
        if entry.epoch > totals.last:
            totals.add(entry)
    return found, totals


def _newest_totals(store: CheckpointStore) -> Totals:
    pages = _pages(store)
    if pages:
        return _read_page(store, pages[-1])[0]
    first = min(store.epochs(), default=store.first_epoch())
    return Totals(first, first - 1)


def _entry(
    store: CheckpointStore, epoch: int, generation: int, sinks: Mapping[str, SinkEpoch]
) -> LedgerEntry:
    try:
        sources = read_log(store.spark_files, f"offsets/{epoch}")[1:]
    except Exception as error:  # Spark may have deleted it; an audit can do without
        log.info("offsets of epoch %d: %s", epoch, error)
        sources = None
    return LedgerEntry(epoch, generation, sources, sinks)


def _stored_entry(store: CheckpointStore, epoch: int) -> LedgerEntry | None:
    """Return a committed epoch's entry from its own records; None if they have no attempt."""
    generation = store.epoch(epoch).committed
    if generation is None:
        return None
    try:
        sinks = store.read_prepared(epoch, generation)
    except FileNotFoundError:  # restored, or deleted meanwhile
        return None
    return _entry(store, epoch, generation, sinks)


def _pages(store: CheckpointStore) -> list[int]:
    names = (name.removesuffix(".json") for name in store.files.list(LEDGER))
    return sorted(int(name) for name in names if name.isdigit())


def _read_page(store: CheckpointStore, last: int) -> tuple[Totals, list[LedgerEntry]]:
    def load(body: dict[str, Any]) -> tuple[Totals, list[LedgerEntry]]:
        entries = [LedgerEntry.from_json(entry) for entry in body["epochs"]]
        return Totals.from_json(last, body["totals"]), entries

    return load_record(store.files, "ledger", f"{LEDGER}/{last}.json", load)


def _write_page(store: CheckpointStore, entries: Sequence[LedgerEntry], totals: Totals) -> None:
    body = {"epochs": [entry.to_json() for entry in entries], "totals": totals.to_json()}
    store.write_ledger_page(totals.last, body)
    for page in _pages(store):
        if page <= totals.last - KEPT_EPOCHS:
            store.files.delete(f"{LEDGER}/{page}.json")
