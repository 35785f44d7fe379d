"""Losses accepted by operators, in a job's directory: ``losses/<epoch>.<sink>.json``.

One file for each sink and epoch, by exclusive create, kept for ever (docs/FORMAT.md, *Accepted
losses*). `protocol/accept_loss.py` has the steps that lead to it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from seamark.checkpoint.envelope import create_record, load_for_people, load_record
from seamark.files import Directory
from seamark.model.errors import LostTransactionError
from seamark.protocol.accept_loss import Acceptance

log = logging.getLogger(__name__)

LOSSES = "losses"
_KIND = "accepted-loss"


@dataclass(frozen=True)
class AcceptedLoss:
    """The accepted loss of one sink's transactions in one epoch.

    `generation` is the attempt's, `transactions` are the handles of the lost ones; `unproved` those
    among them whose system had forgotten how they ended. `rows` counts the sink's rows in the whole
    epoch: no more than these are lost. `accepted_at` is in seconds since 1970.
    """

    epoch: int
    generation: int
    sink: str
    transactions: tuple[str, ...]
    unproved: tuple[str, ...]
    rows: int
    reason: str
    accepted_by: str
    accepted_at: float

    def __str__(self) -> str:
        proved = ", not all of them proved" if self.unproved else ""
        return (
            f"epoch {self.epoch} at sink {self.sink!r}: {len(self.transactions)} transactions are "
            f"lost{proved}, of {self.rows} rows in all; accepted by {self.accepted_by}: "
            f"{self.reason}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it with the time in ms since 1970."""
        return {**asdict(self), "accepted_at": round(self.accepted_at * 1000)}


def read_losses(files: Directory) -> Sequence[AcceptedLoss]:
    """Return the accepted losses of a job's directory, by epoch and sink; logs damaged records."""
    names = [name for name in files.list(LOSSES) if name.endswith(".json")]
    losses = (load_for_people(files, _KIND, f"{LOSSES}/{name}", AcceptedLoss) for name in names)
    return sorted(filter(None, losses), key=lambda loss: (loss.epoch, loss.sink))


def find_loss(files: Directory, epoch: int, sink: str) -> AcceptedLoss | None:
    """Return the accepted loss of one sink in one epoch; None if none was accepted."""
    try:
        return load_record(files, _KIND, _path(epoch, sink), AcceptedLoss)
    except FileNotFoundError:
        return None


def write_loss(
    files: Directory,
    loss: Acceptance,
    generation: int,
    lost: LostTransactionError,
    rows: int,
) -> None:
    """Store the acceptance. If one stands already, nothing is changed."""
    record = AcceptedLoss(
        epoch=loss.epoch,
        generation=generation,
        sink=loss.uid,
        transactions=tuple(sorted(lost.transactions)),
        unproved=tuple(sorted(lost.unproved)),
        rows=rows,
        reason=loss.reason,
        accepted_by=loss.accepted_by,
        accepted_at=time.time(),
    )
    if not create_record(files, _KIND, _path(loss.epoch, loss.uid), asdict(record)):
        log.info("the loss of epoch %d at sink %s was accepted before", loss.epoch, loss.uid)


def _path(epoch: int, sink: str) -> str:
    return f"{LOSSES}/{epoch}.{quote(sink, safe='')}.json"
