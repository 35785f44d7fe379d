"""What a table's own metadata tells of transactions.

A snapshot that ends transactions has their tokens in its summary, below `SUMMARY` and the outcome.
The same commit sets a property of the table, one for each job's sink: the outcomes of its last
`KEPT` commits. The property survives the expiry of snapshots; the summaries reach further back
where snapshots are kept.

The property's value is JSON: ``commits`` is a list of ``[sequence number, outcome, [token, …]]``,
and it has every outcome of this sink's with a sequence number above ``since``.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from seamark.sinks.internal.table_committable import parse
from seamark.sinks.internal.table_committer import ABORTED, COMMITTED

PROPERTY = "seamark.outcomes."
SUMMARY = "seamark."
SINK = "seamark.sink"
KEPT = 50


class Ledger:
    """The outcomes in a table's metadata (pyiceberg's `TableMetadata`)."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata
        self._owners: dict[str, dict[str, Any]] = {}
        self._outcomes: dict[str, str] = {}
        for snapshot in metadata.snapshots:
            for outcome in (COMMITTED, ABORTED):
                tokens = snapshot.summary and snapshot.summary.get(SUMMARY + outcome)
                self._outcomes.update(dict.fromkeys((tokens or "").split(), outcome))
        for name, value in metadata.properties.items():
            if name.startswith(PROPERTY):
                own = self._owners[name.removeprefix(PROPERTY)] = json.loads(value)
                for _, outcome, tokens in own["commits"]:
                    self._outcomes.update(dict.fromkeys(tokens, outcome))

    def outcome(self, handle: str) -> str | None:
        """Return the handle's outcome; None if nothing tells one."""
        return self._outcomes.get(parse(handle).token)

    def knows(self, handle: str, since: int) -> bool:
        """Whether an outcome in a snapshot with a sequence number above `since` would be told."""
        own = self._owners.get(parse(handle).owner)
        if own is not None and own["since"] <= since:
            return True
        there = {snapshot.sequence_number for snapshot in self._metadata.snapshots}
        return there.issuperset(range(since + 1, self._metadata.last_sequence_number + 1))

    def _silent_since(self, owner: str) -> int:
        """Return the last sequence number whose snapshot is expired, or has an outcome of this
        owner's; 0 if there is none."""
        silent = {
            snapshot.sequence_number
            for snapshot in self._metadata.snapshots
            if owner not in ((snapshot.summary and snapshot.summary.get(SINK)) or "").split()
        }
        last: int = self._metadata.last_sequence_number
        return next((number for number in range(last, 0, -1) if number not in silent), 0)

    def begun(self, owner: str) -> dict[str, str]:
        """Return the properties that begin the ledger of a job's sink; none if it has begun."""
        return {} if owner in self._owners else {PROPERTY + owner: json.dumps(self._of(owner))}

    def _of(self, owner: str) -> dict[str, Any]:
        begun = {"since": self._silent_since(owner), "commits": []}
        return self._owners.get(owner, begun)

    def with_(self, outcome: str, handles: Iterable[str], number: int) -> dict[str, str]:
        """Return the properties of a commit with this sequence number that gives these handles
        their outcome."""
        tokens: dict[str, list[str]] = {}
        for handle in handles:
            name = parse(handle)
            tokens.setdefault(name.owner, []).append(name.token)
        properties = {}
        for owner, ended in tokens.items():
            own = self._of(owner)
            commits = [*own["commits"], [number, outcome, ended]]
            dropped = [commit[0] for commit in commits[:-KEPT]]
            value = {"since": max([own["since"], *dropped]), "commits": commits[-KEPT:]}
            properties[PROPERTY + owner] = json.dumps(value, separators=(",", ":"))
        return properties


def summary(outcome: str, handles: Sequence[str]) -> dict[str, str]:
    """Return the entries of a snapshot's summary."""
    names = [parse(handle) for handle in handles]
    return {
        SINK: " ".join(sorted({name.owner for name in names})),
        f"{SUMMARY}epoch": str(max(name.epoch for name in names)),
        SUMMARY + outcome: " ".join(name.token for name in names),
    }
