"""The world of one query: its log, read off the disk, the invariants, and an operator's hand.

Rows are numbered anew in each *era*, which begins when the operator lets the query begin again in a
new location: then rows come once more, and none of an era may come twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from seamark.checkpoint.batch_log import BELOW_CHECKPOINT, UID
from seamark.model.errors import (
    AbortFailedError,
    CheckpointError,
    CommitFailedError,
    CorruptRecordError,
    FencedError,
    LostTransactionError,
    PreCommitError,
    PreflightError,
    RecordNotStoredError,
    SeamarkError,
)
from tests.model.world import ROWS_PER_EPOCH, SparkFailedError, Transaction, Violation

from ..machine import Machine
from ..reality import SPOOLED, TWO_PHASE, Reality, Surroundings

ERA_ROWS = 1000


@dataclass(frozen=True)
class QuerySurroundings(Surroundings):
    """The shape of one query's world. `apart`: the location is not in the checkpoint; `unnamed`:
    the query does not name its checkpoint; `batches`: the input of how many is there at first."""

    apart: bool = False
    unnamed: bool = False
    batches: int = 2


class QueryWorld(Reality):
    UIDS = (UID,)

    def __init__(self, setup: QuerySurroundings, machine: Machine) -> None:
        super().__init__(setup, machine)
        self.disk.is_early = lambda name: sum(map(ord, name)) % 2 == 1
        self.unnamed = setup.unnamed
        self.available = setup.batches * ROWS_PER_EPOCH
        self.checkpoint = "checkpoint1"
        self.place = "place1" if setup.apart else f"{self.checkpoint}/{BELOW_CHECKPOINT}"
        self.adopts = False
        self.era, self.first_row = 0, 0
        self.put_back: Callable[[], None] | None = None
        """How the operator puts back what he has changed, where checkpoint and location do not
        belong together, or are of different moments: each run must be refused."""
        self._mended = False
        self._former: list[str] = []
        """The query's locations before this one, which was adopted."""
        self.decided_by: dict[int, tuple[int, int]] = {}
        """The try that has decided each batch, and its generation."""
        self._names = 1

    # --- what runs ask for

    def options(self) -> dict[str, str]:
        """The query's options, as Spark gives them."""
        options = {"sink": "played"}
        if not self.unnamed or self._is_below:
            options["checkpointlocation"] = f"/{self.checkpoint}"
        if not self._is_below:
            options["location"] = f"/{self.place}"
        if self.adopts:
            options["adopt"] = "true"
        return options

    @property
    def _is_below(self) -> bool:
        return self.place == f"{self.checkpoint}/{BELOW_CHECKPOINT}"

    def rows(self, start: int, end: int) -> tuple[int, ...]:
        return tuple(self.era * ERA_ROWS + n for n in range(start, end))

    def new_name(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    # --- what the files say

    def _watch(self, path: str, data: bytes | None) -> None:
        if path.startswith(f"{self.place}/"):
            if data is not None:
                self._stored(path.removeprefix(f"{self.place}/").split("/"), data)
            return
        match path.removeprefix(f"{self.checkpoint}/").split("/"):
            case ["offsets", name] if data is None:
                self.offsets.pop(int(name), None)
            case ["offsets", name]:
                self.offsets[int(name)] = int(data)  # type: ignore[arg-type]
            case ["commits", name] if data is None:
                self.commits.discard(int(name))
            case ["commits", name]:
                self.commits.add(int(name))

    def _stored(self, path: list[str], data: bytes) -> None:
        match path:
            case [directory, "log", name] if directory == self.job_id:
                body = json.loads(data)["body"]
                number, _, mark = name.removesuffix(".json").partition(".")
                if mark:
                    self._marked(int(number))
                elif "decided" in body:
                    self._decide(int(number), body["decided"])
            case [_, "rewritten", _, batch, _]:
                self._rewritten(UID, int(batch), json.loads(data)["body"])

    def _decide(self, number: int, decided: dict[str, Any]) -> None:
        if number < max(self.log()):  # of one who was asleep: the number is free again
            return
        batch, generation = decided["batch"], decided["generation"]
        by = decided["attempt"], generation
        if self.decided_by.get(batch) == by:
            return  # put back, or moved
        if self.put_back is not None:
            raise Violation(f"batch {batch} is decided, where each run has to be refused")
        if batch in self.decided_by:
            raise Violation(f"batch {batch} is decided by {self.decided_by[batch]} and by {by}")
        self.decided_by[batch] = by
        self.ever_decided.add(batch)
        self.stored[batch, generation] = {UID: self._transactions(UID, decided)}

    def _marked(self, number: int) -> None:
        if (decided := self.log().get(number)) is None:
            return  # by one who was asleep: the entry is gone
        part = self.stored.get((decided["batch"], decided["generation"]), {UID: []})
        for transaction in part[UID]:
            if all(t.state != "committed" for t in self._chain(transaction)):
                raise Violation(f"marked, and not visible: {transaction}")

    def _chain(self, transaction: Transaction) -> list[Transaction]:
        return [transaction, *self.chains.get(transaction, ())]

    @property
    def _log(self) -> str:
        return f"{self.place}/{self.job_id}/log"

    def log(self) -> dict[int, Any]:
        """The log's entries by number: a decision's content, None for a beginning."""
        entries = {}
        for name in self.disk.names(self._log):
            number, _, rest = name.partition(".")
            if rest == "json":
                data = self.disk.files[f"{self._log}/{name}"]
                entries[int(number)] = json.loads(data)["body"].get("decided")
        return dict(sorted(entries.items()))

    @property
    def job_id(self) -> str:
        data = self.disk.files.get(f"{self.place}/job.json")
        return str(json.loads(data)["body"]["job_id"]) if data else ""

    # --- the operator: no run lives meanwhile

    def operate(self, choice: int) -> str:
        """Restore, delete or move what the query has on its disk; return what was done."""
        while self.machine.late:
            with contextlib.suppress(SeamarkError, OSError):
                self.machine.late.pop(0)()
        if self.put_back is not None:
            return "nothing"
        done, choice = OPERATIONS[choice % len(OPERATIONS)], choice // len(OPERATIONS)
        if self._former and choice % 2:  # few have had another one
            done = "place before"
        return done if getattr(self, f"_{done.replace(' ', '_')}")(choice) else f"no {done}"

    @property
    def _planned(self) -> int:
        """The batch that Spark would run next."""
        planned = max(self.offsets, default=-1)
        return planned if planned not in self.commits and planned >= 0 else planned + 1

    @property
    def _newest(self) -> int:
        return max((d["batch"] for d in self.log().values() if d is not None), default=-1)

    def _files(self, *, of_place: bool) -> dict[str, bytes]:
        """The files of the location, or those of Spark's checkpoint."""
        files = self.disk.files.items()
        in_place = {path: data for path, data in files if path.startswith(f"{self.place}/")}
        if of_place:
            return in_place
        at = f"{self.checkpoint}/"
        return {p: data for p, data in files if p.startswith(at) and p not in in_place}

    def _drop(self, paths: Any) -> None:
        for path in list(paths):
            self.disk.drop(path)

    def _roll_back(self, batch: int) -> None:
        """Set Spark's checkpoint back to the moment when it had planned this batch."""
        for n in sorted(self.offsets):
            if n > batch:
                self.disk.drop(f"{self.checkpoint}/offsets/{n}")
        for n in sorted(self.commits):
            if n >= batch:
                self.disk.drop(f"{self.checkpoint}/commits/{n}")

    def _changed(self, before: dict[str, bytes], *, of_place: bool) -> bool:
        """Note whether each run must be refused from here on."""
        planned, newest = self._planned, self._newest
        if newest < 0:
            refused = planned > 0 and not self.adopts
        else:
            known = f"{self.checkpoint}/metadata" in self.disk.files
            refused = not known or planned not in (newest, newest + 1)
        if refused:
            self.put_back = partial(self._put_back, before, of_place=of_place)
        return True

    def _put_back(self, files: dict[str, bytes], *, of_place: bool) -> None:
        self._drop(self._files(of_place=of_place))
        for path, data in files.items():
            self.disk.make(path, data)

    def mend(self) -> None:
        """Put back what was taken away, or the location that was exchanged."""
        assert self.put_back is not None
        put_back, self.put_back, self._mended = self.put_back, None, True
        put_back()

    def repair(self) -> bool:
        """Return whether there was something to mend since this was called last."""
        if self.put_back is not None:
            self.mend()
        mended, self._mended = self._mended, False
        return mended

    def _checkpoint_back(self, choice: int) -> bool:
        if self._newest < 0:
            return False
        before = self._files(of_place=False)
        self._roll_back(choice % (self._newest + 1))
        return self._changed(before, of_place=False)

    def _checkpoint_gone(self, choice: int) -> bool:
        before = self._files(of_place=False)
        self._drop(before)
        return self._changed(before, of_place=False)

    def _log_back(self, choice: int) -> bool:
        """Not to the batch before: nobody could tell that from a batch that was never decided."""
        log = self.log()
        known = [n for n, d in log.items() if d is not None and d["batch"] < self._planned - 1]
        if not known:
            return False
        before, last = self._files(of_place=True), known[choice % len(known)]
        for name in self.disk.names(self._log):
            if int(name.partition(".")[0]) > last:
                self.disk.drop(f"{self._log}/{name}")
        return self._changed(before, of_place=True)

    def _log_gone(self, choice: int) -> bool:
        if self.adopts or self._planned == 0:  # as a new query
            return False
        before = self._files(of_place=True)
        self._drop(before)
        return self._changed(before, of_place=True)

    def _begun_anew(self, choice: int) -> bool:
        self._drop(self._files(of_place=True))
        self._drop(self._files(of_place=False))
        self.adopts = False
        self._former.clear()
        self._new_era(0)
        return True

    def _adopted(self, choice: int) -> bool:
        """An earlier checkpoint, and a new location."""
        batch = max(self._planned - choice % 3, 0)
        self._roll_back(batch)
        self._former.append(self.place)
        self.place = self.new_name("place")
        self.adopts = True
        self._new_era(self.offsets[batch - 1] if batch else 0)
        return True

    def _place_before(self, choice: int) -> bool:
        """The query under a location that it had before another one decided the batch it runs."""
        place, newest, planned = self.place, self._newest, self._planned
        if self.unnamed or newest < 0 or not self._former:
            return False
        self.place = self._former[choice % len(self._former)]
        # Without a decision it is adopted like a new one; with that on the batch no row is written;
        # and where no other one has decided the batch, it goes on.
        at = self._newest
        if at in (-1, planned) or newest < planned == at + 1:
            self.place = place
            return False
        self.put_back = partial(setattr, self, "place", place)
        return True

    def _new_era(self, first_row: int) -> None:
        self.era, self.first_row = self.era + 1, first_row
        self.ever_decided.clear()
        for of_batches in (self.decided_by, self.stored, self.visible_generation):
            of_batches.clear()

    def _moved(self, choice: int) -> bool:
        if self._is_below:
            checkpoint = place = self.new_name("checkpoint")
            place = f"{checkpoint}/{BELOW_CHECKPOINT}"
        elif choice % 2:
            checkpoint, place = self.new_name("checkpoint"), self.place
        else:
            checkpoint, place = self.checkpoint, self.new_name("place")
        spark, own = self._files(of_place=False), self._files(of_place=True)
        self._drop([*spark, *own])
        before, self.checkpoint, self.place = (self.checkpoint, self.place), checkpoint, place
        for files, old, new in ((own, before[1], place), (spark, before[0], checkpoint)):
            for path, data in files.items():
                self.disk.make(new + path.removeprefix(old), data)
        return True

    # --- the judgement

    def check_stop(self, driver: Any, error: BaseException) -> None:
        """Fail unless a query may stop with `error`."""
        match error:
            case LostTransactionError() | CorruptRecordError():
                allowed = False
            case CheckpointError():  # or it was asleep, and others have decided batches since
                allowed = self.put_back is not None or self._is_behind(driver)
            case FencedError():
                allowed = driver.this is None or driver.this.number != self.newest_try
            case AbortFailedError():
                allowed = "committed already" not in str(error)
            case FileNotFoundError():  # what it has listed is deleted since: it says so in words
                allowed = False
            case _:
                allowed = isinstance(error, ALLOWED)
        if not allowed:
            raise Violation(f"{driver.name} stopped: {type(error).__name__}: {error}") from error

    def _is_behind(self, driver: Any) -> bool:
        """Whether it may have been asleep while others decided its batch."""
        return bool(driver.batch <= max(self.decided_by, default=-1))

    @property
    def newest_try(self) -> int:
        return max((n for n, decided in self.log().items() if decided is None), default=0)

    def check_decided(self) -> None:
        """Fail if something decided is aborted."""
        if self.ways[UID] != TWO_PHASE:
            return
        for parts in self.stored.values():
            for transaction in parts[UID]:
                if transaction.state == "aborted":
                    raise Violation(f"decided and aborted: {transaction}")

    def check_rows(self) -> None:
        done = [t for t in self.sinks[UID].transactions if t.state == "committed"]
        seen = sorted(row for t in done for row in t.rows)
        if self.ways[UID] not in (TWO_PHASE, SPOOLED):
            seen = sorted(self.visible[UID] | self.upserted[UID])
        missing = set(self.rows(self.first_row, self.available)) - set(seen)
        if missing or len(seen) != len(set(seen)):
            raise Violation(f"era {self.era}: missing are {sorted(missing)}, visible {seen}")

    def left_open(self, generation: int) -> list[Transaction]:
        return [
            t for t in self.sinks[UID].open()
            if t.id.startswith(self.job_id) and t.generation <= generation
        ]  # fmt: skip


OPERATIONS = (
    "checkpoint back", "checkpoint gone", "log back", "log gone", "begun anew", "adopted", "moved",
)  # fmt: skip
ALLOWED = (
    SparkFailedError, RecordNotStoredError, PreflightError, CommitFailedError, PreCommitError,
    OSError,
)  # fmt: skip
