"""The outcomes of one sink's transactions, kept in the table's log.

Every log entry that commits or aborts transactions of this sink has two marks: an application
transaction (``txn``) with the id `app_id`, and the handles with their outcome in its
``commitInfo``. The first mark makes two such entries exclude each other: delta-rs refuses an entry
if another with the same id has come since the table was loaded. The second mark is the proof, tied
to the handle.

Invariants: at most one entry has a handle's outcome. No data file is deleted before an entry says
"aborted".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.file_systems import Directory
from seamark.sinks.delta import store

KEY = "seamark"
COMMITTED, ABORTED = "committed", "aborted"


@dataclass(frozen=True)
class Entry:
    """A handle's outcome, and the version of its log entry."""

    outcome: str
    version: int


class Ledger:
    """The log's entries read so far; each is read once."""

    def __init__(self, files: Directory, job_id: str, sink_uid: str) -> None:
        self.app_id = f"seamark:{job_id}:{sink_uid}"
        self._files = files
        self._first = self._next = 0
        self._entries: dict[str, Entry] = {}

    def mark(self, outcome: str, handles: Sequence[str]) -> dict[str, Any]:
        """Return a commit's metadata for this outcome."""
        return {KEY: {"appId": self.app_id, "outcome": outcome, "handles": list(handles)}}

    def read(self, since: int, version: int) -> None:
        """Read every entry from `since` to `version`, both included."""
        is_apart = since < self._first or since > self._next
        if is_apart or version + 1 < self._next:  # the second: the table was created anew
            self._entries, self._first, self._next = {}, since, since
        for number in range(self._next, version + 1):
            data = store.read(self._files, entry_path(number))
            if data is None:
                self._first = number + 1  # cleaned up
            elif b'"seamark"' in data:
                self._entries.update(self._told(number, data))
        self._next = version + 1

    def forget(self, before: int) -> None:
        """Drop entries before this version: nobody asks for older ones any more."""
        self._first = max(self._first, min(before, self._next))
        self._entries = {h: e for h, e in self._entries.items() if e.version >= before}

    def knows(self, since: int) -> bool:
        """Whether every entry from `since` on could still be read."""
        return since >= self._first

    def entry(self, handle: str) -> Entry | None:
        """Return the handle's entry, None if there is none."""
        return self._entries.get(handle)

    def _told(self, number: int, data: bytes) -> Iterable[tuple[str, Entry]]:
        for line in data.splitlines():
            info = json.loads(line).get("commitInfo") if b'"commitInfo"' in line else None
            mark = info.get(KEY) if isinstance(info, dict) else None
            # Other jobs' entries too: a restored job asks for the attempts of the first job.
            if isinstance(mark, dict):
                for handle in mark["handles"]:
                    yield handle, Entry(mark["outcome"], number)


def entry_path(version: int) -> str:
    """Return a log entry's path below the table's directory."""
    return f"_delta_log/{version:020d}.json"
