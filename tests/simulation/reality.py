"""The model's `World`, told by the files that the real coordinator writes.

`tests/model/world.py` has the sinks' transactions, the invariants and the judgement. Here its
records are not called but read off the disk: each new or deleted file of the job's directory says
what the coordinator did.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from seamark.checkpoint import spool
from seamark.checkpoint.lineages import SUPERSEDED_BY, lineage_directory
from seamark.model.errors import (
    AbortFailedError,
    PreflightError,
    RecordNotStoredError,
    SeamarkError,
    StoppedError,
)
from seamark.protocol.states import IllegalTransitionError, Seal
from tests.model.world import Setup, Sink, Transaction, Violation, World

from .disk import Disk
from .machine import EndlessError, Machine

JOB = "job"
TWO_PHASE, SPOOLED, WRITE_AHEAD, UPSERT = "two-phase", "spooled", "write-ahead", "upsert"


@dataclass(frozen=True)
class Surroundings(Setup):
    """The shape of one world; `ways` has each sink's."""

    ways: tuple[str, ...] = (TWO_PHASE, TWO_PHASE)
    deadlines: bool = False
    """Whether the records' files have deadlines of their own (`files/deadline.py`)."""
    restarts: int = 0
    """How often a failed run is started again in the same program."""
    min_pause_s: float = 0.0
    timeout_s: float = 600.0
    statistics: bool = True


class Reality(World):
    """See the module's docstring."""

    UIDS: tuple[str, ...] = ("alpha", "beta", "gamma")

    def __init__(self, setup: Surroundings, machine: Machine, number: int = 1) -> None:
        super().__init__(setup)
        self.number = number
        self.directory = f"{JOB}/{lineage_directory(number)}".rstrip("/")
        self.lineages: dict[int, Reality] = {number: self}
        uids = self.UIDS[: len(setup.ways)]
        self.sinks = {uid: Sink(uid, setup.forgetful) for uid in uids}
        self.visible = {uid: set() for uid in self.sinks}
        self.ways = dict(zip(self.sinks, setup.ways, strict=True))
        self.machine = machine
        if number == 1:
            machine.world = self
            self.disk = machine.disk = Disk(machine, self._watch)
        self.by_handle: dict[tuple[str, str, int], Transaction] = {}
        self.tokens: dict[tuple[str, str], tuple[int, ...]] = {}
        self.upserted: dict[str, set[int]] = {uid: set() for uid in self.sinks}
        self.violations: list[Violation] = []
        self.commits, self.offsets = set(), {}
        for epoch in range(setup.first_epoch) if number == 1 else ():
            self.disk.make(f"{JOB}/spark/offsets/{epoch}", b"0")
            self.disk.make(f"{JOB}/spark/commits/{epoch}", b"")

    def restored(self, epoch: int) -> Reality:
        """As in the model. Its files come from the restore."""
        setup = replace(self.setup, first_epoch=epoch + 1)
        assert isinstance(setup, Surroundings)
        made = Reality(setup, self.machine, max(self.lineages) + 1)
        for name in ("lineages", "disk", "by_handle", "tokens", "upserted", "violations"):
            setattr(made, name, getattr(self, name))
        made.available, made.visible = self.available, self.visible
        made.before = (*self.before, self)
        self.lineages[made.number] = made
        return made

    def owned(self, driver: Any, effect: Callable[[], Any]) -> Any:
        """Run an effect of this driver."""
        self.caller = driver
        return self.judged(effect)

    def judged(self, effect: Callable[[], Any]) -> Any:
        """Run an effect; keep a violation, as the coordinator's own code might swallow it."""
        try:
            return effect()
        except Violation as violation:
            self.violations.append(violation)
            self.machine.halted = True
            raise

    # --- what the files say

    def _watch(self, path: str, data: bytes | None) -> None:
        match path.split("/")[1:]:
            case ["lineages", number, *below]:
                self.lineages[int(number)]._told(below, data)
            case below:
                self._told(below, data)

    def _told(self, path: list[str], data: bytes | None) -> None:
        match path:
            case ["lease", name]:
                self._lease(int(name.partition(".")[0]), data)
            case ["spark", "commits", name] if name.isdigit():
                if data is None:
                    self.void_decision(int(name))
                else:
                    self.commits.add(int(name))
                    self.ever_decided.add(int(name))
            case ["spark", "offsets", name] if name.isdigit():
                if data is None:
                    self.void_offsets(int(name))
                else:
                    self.offsets[int(name)] = int(data)
            case ["epochs", epoch, name] if data is not None and name != "manifest.json":
                self._record(int(epoch), name, json.loads(data)["body"])
            case ["rewritten", sink, epoch, _] if data is not None:
                self._rewritten(sink, int(epoch), json.loads(data)["body"])

    def _lease(self, generation: int, data: bytes | None) -> None:
        if data is not None:
            self.claim_generation(generation)
            if successor := json.loads(data)["body"].get(SUPERSEDED_BY):
                self.last_leases[generation] = self.lineages[successor["lineage"]]
        elif generation in self.leases:
            self.forget_generations([generation])

    def _record(self, epoch: int, name: str, body: dict[str, Any]) -> None:
        kind, generation = name.partition(".")[0], body["generation"]
        if kind == "prepared":
            parts = {uid: self._transactions(uid, part) for uid, part in body["sinks"].items()}
            self.plans[epoch, generation] = int(body["plan"])
            self.stored[epoch, generation] = {uid: parts.get(uid, []) for uid in self.sinks}
        elif kind == "sealed":
            self.seals[epoch, generation] = seal = Seal(body["seal"])
            if seal is Seal.COMMIT and "decision" not in body:
                self.unkept.add(epoch)
        elif kind == "committed":
            self.confirmed[epoch] = generation
        elif kind == "started":
            self.claims[epoch] = generation
            self.claimed_plans[epoch] = int(body["plan"])

    def _transactions(self, uid: str, part: dict[str, Any]) -> list[Transaction]:
        if self.ways[uid] not in (TWO_PHASE, SPOOLED):
            return []
        return [self._named(uid, base64.b64decode(c)) for c in part["committables"]]

    def _named(self, uid: str, dumped: bytes) -> Transaction:
        if dumped.startswith(spool._MAGIC):
            dumped = base64.b64decode(json.loads(dumped.split(b" ", 3)[3])["committable"])
        id_, _, number = dumped.decode().rpartition("#")
        return self.by_handle[uid, id_, int(number)]

    def _rewritten(self, uid: str, epoch: int, body: dict[str, Any]) -> None:
        made = self._named(uid, base64.b64decode(body["committable"]))
        (lost,) = {
            t: None
            for (e, _), parts in self.stored.items()
            if e == epoch
            for t in parts[uid]
            if t.id == body["handle"]
        }
        made.rewrites = lost
        self.chains.setdefault(lost, []).append(made)

    # --- sinks that have no transactions

    def take(self, uid: str, token: str, epoch: int, rows: tuple[int, ...]) -> None:
        """A write-ahead sink's target takes a token in one step with its rows, and once."""
        before = self.tokens.setdefault((uid, token), rows)
        if before is not rows:
            if before != rows:
                raise Violation(f"{uid}: {token} came with rows {before}, and then with {rows}")
            return
        if epoch not in self.ever_decided:
            raise Violation(f"{uid}: rows of the undecided epoch {epoch} were sent")
        if doubled := self.visible[uid] & set(rows):
            raise Violation(f"{uid}: rows {sorted(doubled)} were sent twice")
        self.visible[uid] |= set(rows)

    def expire(self, choice: int) -> Transaction | None:
        """As in the model, where the rows are spooled."""
        everything = self.sinks
        self.sinks = {uid: s for uid, s in everything.items() if self.ways[uid] == SPOOLED}
        try:
            return super().expire(choice)
        finally:
            self.sinks = everything

    # --- the judgement

    def check_stop(self, driver: Any, error: BaseException) -> None:
        """As in the model; besides, a storage and a system that were away may stop a driver."""
        match error:
            case RecordNotStoredError() | StoppedError() | PreflightError():
                return
            case AbortFailedError() if "committed already" not in str(error):
                return
            case EndlessError() | IllegalTransitionError():
                pass
            case OSError():
                return
            case SeamarkError() | Exception() if not isinstance(error, AssertionError):
                super().check_stop(driver, error)
                return
        raise Violation(f"{driver.name} stopped: {type(error).__name__}: {error}") from error

    def check_rows(self) -> None:
        """Judge what is visible in the end, at every sink."""
        transactional, others = {}, {}
        for uid, sink in self.sinks.items():
            (transactional if self.ways[uid] in (TWO_PHASE, SPOOLED) else others)[uid] = sink
        everything, self.sinks = self.sinks, transactional
        try:
            super().check_rows()
        finally:
            self.sinks = everything
        may_miss = self.skipped if self.setup.at_most_once else set()
        for uid in others:
            seen = self.visible[uid] | self.upserted[uid]
            if missing := set(range(self.available)) - seen - may_miss:
                raise Violation(f"{uid}: rows {sorted(missing)} went in, and are not visible")

    def left_open(self, generation: int) -> list[Transaction]:
        """The open transactions of this generation and of older ones."""
        left = [t for sink in self.sinks.values() for t in sink.open()]
        return [t for t in left if t.generation <= generation]
