"""`seamark audit`: a job's targets, read back and compared with its ledger.

The program is executed up to its `job.run()`, which answers instead of running the job
(`verify/audit/one_job.py`).
"""

import re
from collections.abc import Sequence
from typing import Any

from seamark.model.errors import UserError
from seamark.operations.run import Program
from seamark.operations.transactions import ask_program

_EPOCHS = re.compile(r"(\d*)\.\.(\d*)|(\d+)")


def audit(
    program: Program,
    *,
    epochs: str = "",
    sinks: Sequence[str] = (),
    epoch_columns: Sequence[str] = (),
    shared: bool = False,
) -> dict[str, Any]:
    """Return the audit of the program's job: ``job``, ``epochs``, ``sinks``, ``findings``.

    epochs: ``A..B``, ``A..``, ``..B`` or one number; "" for all that the ledger has.
    epoch_columns: ``SINK=COLUMN`` each. Raises UserError and OperationFailedError.
    """
    first, last = epoch_range(epochs)
    asked = {"verb": "audit", "first": first, "last": last, "sinks": list(sinks), "shared": shared}
    return ask_program(program, {**asked, "epoch_columns": dict(map(epoch_column, epoch_columns))})


def epoch_range(epochs: str) -> tuple[int | None, int | None]:
    """Return the first and the last epoch of ``A..B``, None for an open end."""
    if not epochs:
        return None, None
    match = _EPOCHS.fullmatch(epochs)
    if match is None:
        raise UserError(f"--epochs is {epochs!r}; give A..B, A.., ..B, or one epoch's number")
    first, last, one = (int(text) if text else None for text in match.groups())
    return (one, one) if one is not None else (first, last)


def epoch_column(text: str) -> tuple[str, str]:
    """Return the parts of ``SINK=COLUMN``."""
    uid, _, column = text.partition("=")
    if not uid or not column:
        raise UserError(f"--epoch-column is {text!r}; give SINK=COLUMN, e.g. to-sqlite=epoch")
    return uid, column
