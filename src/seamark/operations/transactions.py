"""`seamark txn`: a job's open transactions at its sinks' systems, and losses accepted.

The program is executed up to its `job.run()`, which answers instead of running the job
(`runtime/job_transactions.py`).
"""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seamark.api.settings import TRANSACTIONS_ANSWER, TRANSACTIONS_VARIABLE
from seamark.model.errors import OperationFailedError, UserError
from seamark.operations.run import Program


def list_open(program: Program) -> Sequence[dict[str, Any]]:
    """Return the open transactions of the program's job, as `OpenTransaction.to_json` gives them.

    Raises UserError and OperationFailedError with the job's words, or without an answer.
    """
    return _rows(_asked(program, {"verb": "list"}))


def commit(
    program: Program, transactions: Sequence[str], *, force: bool
) -> Sequence[dict[str, Any]]:
    """Commit open transactions by name; all with the verdict *must commit* if none is named."""
    asked = {"verb": "commit", "transactions": list(transactions), "force": force}
    return _rows(_asked(program, asked))


def abort(
    program: Program, transactions: Sequence[str], *, force: bool
) -> Sequence[dict[str, Any]]:
    """Abort open transactions by name; all with the verdict *safe to abort* if none is named."""
    asked = {"verb": "abort", "transactions": list(transactions), "force": force}
    return _rows(_asked(program, asked))


def accept_loss(
    program: Program, epoch: int, sink: str, reason: str, *, force: bool
) -> dict[str, Any]:
    """Accept one sink's loss in one epoch; return the record, as `AcceptedLoss.to_json` gives it.
    It names this user and machine."""
    if not reason.strip():
        raise UserError("--reason is empty; say why the loss is accepted: it is kept for ever")
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    asked = {"verb": "accept-loss", "epoch": epoch, "sink": sink, "reason": reason, "by": by}
    accepted: dict[str, Any] = _asked(program, {**asked, "force": force})["accepted"]
    return accepted


def _rows(answer: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return [{"job": answer["job"], **row} for row in answer["transactions"]]


def _asked(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    command, environment = program.command()
    with tempfile.TemporaryDirectory(prefix="seamark-txn-") as scratch:
        file = Path(scratch) / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        done = subprocess.run(
            command,
            stdout=sys.stderr,
            env={**environment, TRANSACTIONS_VARIABLE: str(file)},
            check=False,
        )
        answer_file = file.with_name(file.name + TRANSACTIONS_ANSWER)
        if not answer_file.exists():
            how = f"exit code {done.returncode}"
            if done.returncode < 0:
                how = f"signal {-done.returncode}"
            raise OperationFailedError(
                f"{program.app} has ended ({how}) without an answer; it must call job.run()"
            )
        answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    if "error" in answer:
        raise (UserError if answer["mistake"] else OperationFailedError)(answer["error"])
    return answer
