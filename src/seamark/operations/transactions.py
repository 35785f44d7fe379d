"""`seamark txn`: a job's open transactions at its sinks' systems, and losses accepted.

The program is executed up to its `job.run()`, which answers instead of running the job
(`runtime/job_transactions.py`).
"""

import getpass
import json
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seamark.api.settings import TRANSACTIONS_ANSWER, TRANSACTIONS_VARIABLE
from seamark.model.errors import OperationFailedError, UserError
from seamark.operations.run import Program, has_ended


def list_open(program: Program) -> Sequence[dict[str, Any]]:
    """Return the open transactions of the program's job, as `OpenTransaction.to_json` gives them.

    Raises UserError and OperationFailedError with the job's words, or without an answer.
    """
    return _rows(ask_program(program, {"verb": "list"}))


def end(
    program: Program, verb: str, transactions: Sequence[str], *, force: bool
) -> Sequence[dict[str, Any]]:
    """Commit or abort (`verb`) open transactions by name; if none is named, all with the verdict
    *must commit* or *safe to abort*."""
    asked = {"verb": verb, "transactions": list(transactions), "force": force}
    return _rows(ask_program(program, asked))


def accept_loss(
    program: Program, epoch: int, sink: str, reason: str, *, force: bool
) -> dict[str, Any]:
    """Accept one sink's loss in one epoch; return the record, as `AcceptedLoss.to_json` gives it.
    It names this user and machine."""
    if not reason.strip():
        raise UserError("--reason is empty; say why the loss is accepted: it is kept for ever")
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    asked = {"verb": "accept-loss", "epoch": epoch, "sink": sink, "reason": reason, "by": by}
    accepted: dict[str, Any] = ask_program(program, {**asked, "force": force})["accepted"]
    return accepted


def _rows(answer: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return [{"job": answer["job"], **row} for row in answer["transactions"]]


def ask_program(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    """Run the program up to its ``job.run()``, and return its answer to the request.

    Raises UserError and OperationFailedError with the job's words, or without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="seamark-txn-") as scratch:
        file = Path(scratch) / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        answer_file = file.with_name(file.name + TRANSACTIONS_ANSWER)
        answer, code = program.ask(TRANSACTIONS_VARIABLE, file, answer_file)
    if answer is None:
        ended = has_ended(program.app, code)
        raise OperationFailedError(f"{ended} without an answer; it must call job.run()")
    if "error" in answer:
        raise (UserError if answer["mistake"] else OperationFailedError)(answer["error"])
    return answer
