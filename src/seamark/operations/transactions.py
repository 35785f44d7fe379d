"""`seamark txn`: a job's open transactions at its sinks' systems, and losses accepted.

The program is executed up to its `job.run()`, which answers instead of running the job
(`jobs/job_transactions.py`). Those of a whole Kafka cluster need no program.
"""

import getpass
import json
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seamark.api.settings import TRANSACTIONS_ANSWER, TRANSACTIONS_VARIABLE
from seamark.contracts.sink import OpenFacts
from seamark.model.errors import OperationFailedError, UserError
from seamark.operations.offsets import read_options
from seamark.operations.run import Program, has_not_answered
from seamark.sinks.kafka import options
from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError
from seamark.sinks.kafka.committer import open_facts
from seamark.sinks.kafka.end_transaction import Description
from seamark.sinks.kafka.transactional_id import parse


def list_open(program: Program) -> Sequence[dict[str, Any]]:
    """Return the open transactions of the program's job, as `OpenTransaction.to_json` gives them.
    Raises UserError and OperationFailedError with the job's words, or without an answer."""
    return _rows(ask_program(program, {"verb": "list"}))


def list_on_cluster(servers: str, prefix: str, config: Path | None) -> Sequence[dict[str, Any]]:
    """Return the open transactions of a Kafka cluster whose ids begin with `prefix`, oldest first;
    nothing is changed. `config`: a file as of `read_options`. Times are ms since 1970, durations
    ms, -1 if unknown. No record says what is to become of them: that takes their job's program.

    Raises UserError, ConfigurationError, and OperationFailedError if a broker does not answer.
    """
    texts = options.checked(read_options(config), "--command-config")
    try:
        with closing(BrokerConnection(servers, texts)) as broker:
            ids = [id_ for id_ in broker.open_transactions() if id_.startswith(prefix)]
            states = broker.describe(ids)
            facts = open_facts(broker, [states[id_] for id_ in ids])
    except UnreachableError as error:
        raise OperationFailedError(
            f"Kafka at {servers} does not answer: {error}; look at --bootstrap-servers and "
            "--command-config"
        ) from None
    transactions = [
        _on_cluster(id_, state, fact)
        for id_, fact in zip(ids, facts, strict=True)
        if isinstance(state := states[id_], Description) and fact.started_at  # else it has ended
    ]
    return sorted(transactions, key=lambda one: (one["since"], one["transaction"]))


def _on_cluster(id_: str, state: Description, facts: OpenFacts) -> dict[str, Any]:
    ours, now_ms = parse(id_), round(time.time() * 1000)
    known = "not Seamark's: no decision record here, so what becomes of it is unknown"
    if ours is not None:
        known = (
            f"Seamark's: of job {ours.owner.partition('-')[0]}…, generation {ours.generation}; its "
            "verdict is told by: seamark txn list APP.PY"
        )
    return {
        "transaction": id_,
        "producer-id": state.producer_id,
        "producer-epoch": state.producer_epoch,
        "state": state.state,
        "since": state.started_ms,
        "age": max(now_ms - state.started_ms, 0),
        "timeout": state.timeout_ms,
        "time-left": max(state.started_ms + state.timeout_ms - now_ms, 0),
        "partitions": [f"{topic}-{partition}" for topic, partition in state.partitions],
        "held-up": [asdict(held) for held in facts.held_up],
        "seamark": ours is not None,
        "known": known,
    }


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
    """Run the program up to its ``job.run()``, and return its answer to the request. Raises
    UserError and OperationFailedError with the job's words, or without an answer."""
    with tempfile.TemporaryDirectory(prefix="seamark-txn-") as scratch:
        file = Path(scratch) / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        answer_file = file.with_name(file.name + TRANSACTIONS_ANSWER)
        answer, code = program.ask(TRANSACTIONS_VARIABLE, file, answer_file)
    if answer is None:
        raise OperationFailedError(has_not_answered(program, code))
    if "error" in answer:
        raise (UserError if answer["mistake"] else OperationFailedError)(answer["error"])
    return answer
