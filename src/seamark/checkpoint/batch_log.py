"""The log of a data source's query, stored in its location: `protocol/batches.py` on real files.

job.json                       the location's job id, made once, and the directory of its log
<job id>/log/<n>.json          `Begun` or `Decided`, by exclusive create; docs/FORMAT.md
<job id>/log/<n>.committed.json    the mark of a committed decision

`locations_of` reads which locations the query of a checkpoint has had.
"""

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seamark.checkpoint.envelope import create_record, load_for_people, load_record
from seamark.checkpoint.ledger import Total
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.files import Directory, in_threads, numbered
from seamark.model.errors import CorruptRecordError
from seamark.model.records import read_as, record_of
from seamark.protocol.batches import Begun, Decided, Entry, deleted, newest_decision

UID = "sink"
"""The uid of a query's one sink."""
BELOW_CHECKPOINT = "seamark"
"""The default location, below the query's checkpoint location."""
_LOCATIONS = f"{BELOW_CHECKPOINT}/locations"
KEPT = 100
"""Entries before the newest decision that are kept, for people and audits."""
_FORGOTTEN_AT_ONCE = 10
_MARK = ".committed"
_READERS = 16


class StoredLog:
    """See `BatchLog`. Entries never change, so each is read once in a process.

    `identity`: that of the query whose log it is; None: that of the location, for people."""

    def __init__(self, files: Directory, identity: JobIdentity | None = None) -> None:
        self.files = files
        self._identity = identity
        self._read: dict[int, Entry] = {}
        self._kept: dict[int, Entry] = {}
        self._tidied = 0

    def path(self, number: int, mark: str = "") -> str:
        """Return the path of an entry, or of its mark."""
        return f"{self.directory}/{number}{mark}.json"

    @property
    def directory(self) -> str:
        """The path of its entries' directory."""
        if self._identity is None:
            try:
                self._identity = _stored_identity(self.files)
            except FileNotFoundError:
                return "log"
        return f"{self._identity.log_directory}/log".lstrip("/")

    def stands(self) -> bool:
        """See `BatchLog`."""
        try:
            return _stored_identity(self.files) == self._identity
        except FileNotFoundError:
            return False

    def numbers(self) -> list[int]:
        """Return every entry's number, ascending."""
        return numbered(self._names(), ".json")

    def _names(self) -> list[str]:
        return self.files.list(self.directory)

    def entries(self) -> Mapping[int, Entry]:
        """See `BatchLog`: the newest decision, and all behind it. Raises CorruptRecordError."""
        before, names = None, self._names()
        while names != before:
            try:
                return self._entries(names)
            except FileNotFoundError:  # deleted since: newer ones are there, or none at all
                before, names = names, self._names()
        raise CorruptRecordError(
            f"{self.files.uri}/{self.directory}: entries are missing below the newest, "
            f"{max(numbered(names, '.json'))}.json; put them back"
        )

    def _entries(self, names: Sequence[str]) -> Mapping[int, Entry]:
        entries: dict[int, Entry] = {}
        # By number: a listing in pieces may miss an entry, and have the next one.
        for number in range(max(numbered(names, ".json"), default=0), 0, -1):
            entries[number] = entry = self.entry(number)
            if isinstance(entry, Decided):
                entries[number] = replace(entry, committed=f"{number}{_MARK}.json" in names)
                break
        self._read = entries
        return entries

    def kept(self) -> Mapping[int, Entry]:
        """Return every readable entry that is kept, ascending; for people and audits."""
        names, known = self._names(), self._kept

        def read(number: int) -> Entry | None:
            stored = known.get(number)
            return stored or load_for_people(self.files, "batch-log", self.path(number), _entry_of)

        numbers = numbered(names, ".json")
        stored = zip(numbers, in_threads(read, numbers, _READERS), strict=True)
        self._kept = {number: entry for number, entry in stored if entry is not None}
        marked = set(numbered(names, f"{_MARK}.json"))
        return {
            number: replace(entry, committed=number in marked)
            if isinstance(entry, Decided)
            else entry
            for number, entry in self._kept.items()
        }

    def entry(self, number: int) -> Entry:
        """Read one entry. Raises FileNotFoundError, and CorruptRecordError naming the file."""
        known = self._read.get(number)
        return known or load_record(self.files, "batch-log", self.path(number), _entry_of)

    def append(self, number: int, entry: Entry) -> bool:
        """See `BatchLog`."""
        entry = replace(entry, at=time.time())
        if isinstance(entry, Decided):
            entry = replace(entry, total=_total(entry, newest_decision(self._read)))
        made = create_record(self.files, "batch-log", self.path(number), _body(entry))
        if made:
            self._read[number] = entry
        return made

    def mark_committed(self, number: int) -> None:
        """See `BatchLog`."""
        path = self.path(number, _MARK)
        create_record(self.files, "batch-committed", path, {"at": time.time()})

    def is_committed(self, number: int) -> bool:
        """See `BatchLog`. Marks are deleted in time, behind newer decisions: these prove it too."""
        marked = self.files.exists(self.path(number, _MARK))
        return marked or min(self.entries(), default=0) > number

    def forget(self, below: int) -> None:
        """Delete entries below this number, of which none is the newest decision, with their
        marks."""
        names = self._names()
        for mark in ("", _MARK):
            for number in numbered(names, f"{mark}.json"):
                if number < below:
                    self.files.delete(self.path(number, mark))

    def tidy(self) -> None:
        """Delete what is older than the entries kept before the newest decision. Called after each
        commit; looks seldom, as a listing is dear on an object store."""
        decided = max((n for n, e in self._read.items() if isinstance(e, Decided)), default=0)
        if decided - self._tidied >= _FORGOTTEN_AT_ONCE:
            self._tidied = decided
            self.forget(decided - KEPT)


def locations_of(checkpoint: Directory) -> list[str]:
    """Return the locations that the query of a checkpoint has had, the one in use last. "" is the
    default one, which has no record if it is the first. Raises CorruptRecordError."""
    numbers = numbered(checkpoint.list(_LOCATIONS), ".json")
    paths = [f"{_LOCATIONS}/{number}.json" for number in numbers]
    return ["", *(load_record(checkpoint, "location", p, lambda b: str(b["at"])) for p in paths)]


def add_location(checkpoint: Directory, number: int, at: str) -> bool:
    """Record that the query's location is `at` from now on, as the one of this number; return False
    if another run has recorded one meanwhile."""
    return create_record(checkpoint, "location", f"{_LOCATIONS}/{number}.json", {"at": at})


def identity_of(files: Directory, name: str) -> JobIdentity:
    """Return the location's identity; write it if the location is new."""
    try:
        return _stored_identity(files)
    except FileNotFoundError:
        job_id = uuid.uuid4().hex
        made = JobIdentity(
            job_id=job_id,
            lineage_id=uuid.uuid4().hex,
            name=name,
            first_epoch=0,
            created_at=time.time(),
            spark_directory="",
            log_directory=job_id,
        )
        return CheckpointStore(files, files).create_identity(made)


def identity_of_job(files: Directory, job_id: str) -> JobIdentity:
    """Return the location's identity. Raises FencedError if it is not this job's any more."""
    with contextlib.suppress(FileNotFoundError):
        if (stored := _stored_identity(files)).job_id == job_id:
            return stored
    raise deleted()


def _stored_identity(files: Directory) -> JobIdentity:
    return CheckpointStore(files, files).read_identity()


def _total(decided: Decided, before: Decided | None) -> Total:
    """Return what the batches up to `decided` have given to the sink; `before` is the one decided
    before it, None for the first. One of an older version has no total."""
    since = decided.batch if before is None else before.batch + 1
    total: Total = (before and before.total) or Total(since)
    return total.after(decided.batch, decided.part)


def _body(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, Begun):
        return {"begun": {"generation": entry.generation, "at": entry.at}}
    part: SinkEpoch = entry.part
    return {
        "decided": {
            "batch": entry.batch,
            "query": entry.query,
            "attempt": entry.attempt,
            "generation": entry.generation,
            "at": entry.at,
            "plan": entry.plan,
            "total": entry.total.to_json(),
            **record_of(part),
        }
    }


def _entry_of(body: Mapping[str, Any]) -> Entry:
    if "begun" in body:
        return Begun(body["begun"]["generation"], body["begun"]["at"])
    decided = body["decided"]
    return Decided(
        decided["batch"],
        decided["query"],
        decided["attempt"],
        decided["generation"],
        read_as(SinkEpoch, decided, newer=True),
        plan=decided.get("plan", ""),
        at=decided["at"],
        total=Total.from_json(decided["total"]) if "total" in decided else None,
    )
