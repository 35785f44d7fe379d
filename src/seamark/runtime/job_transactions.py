"""A declared job's open transactions, without a run of it; and the answers to `seamark txn` and
`seamark audit`.

The command runs the program up to its ``job.run()``, with a request in a file: only the program
knows the sinks' addresses and passwords. The answer goes into a file beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.api.settings import TRANSACTIONS_ANSWER
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.transactions import JobTransactions, OpenTransaction
from seamark.model.errors import SeamarkError, UserError
from seamark.protocol.accept_loss import Acceptance
from seamark.runtime.hadoop_files import hadoop_settings, open_files
from seamark.runtime.log_redaction import RedactedLog, job_redactor
from seamark.runtime.registry import driver_state


def job_transactions(
    spark: SparkSession, declared: JobDeclaration, storage: str
) -> JobTransactions:
    """Return the open transactions of a declared job with its checkpoints in `storage`."""
    directory = f"{storage}/{declared.directory}"
    store = CheckpointStore(
        open_files(spark, directory, make=False),
        open_files(spark, declared.below(directory), make=False),
    )
    job = CheckpointedJob(
        declared.name,
        {uid: declaration.sink for uid, declaration in declared.sinks.items()},
        store,
        declared.checkpoint,
        {sink.uid: sink.schema for sink in declared.sinks.values()},
        hadoop_settings(spark),
    )
    return JobTransactions(
        job,
        lambda: driver_state(storage, declared.directory, store),
        lambda uri: open_files(spark, uri, make=False),
    )


def answer_request(
    spark: SparkSession,
    declared: JobDeclaration,
    storage: str,
    secrets: Iterable[str],
    request: Path,
    audit: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Do what the file `request` asks, and write the answer beside it, without secrets. An error of
    Seamark's is an answer too. `audit` answers to the verb of this name."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    redactor = job_redactor(spark, declared, storage, secrets)
    with RedactedLog(redactor):
        try:
            if asked["verb"] == "audit":
                answer = {"job": declared.name, **audit(asked)}
            else:
                with job_transactions(spark, declared, storage) as transactions:
                    answer = {"job": declared.name, **_answer(transactions, asked)}
        except SeamarkError as error:
            answer = {"error": str(error), "mistake": isinstance(error, UserError)}
    text = json.dumps(redactor.everywhere(answer))
    request.with_name(request.name + TRANSACTIONS_ANSWER).write_text(text, encoding="utf-8")


def _answer(transactions: JobTransactions, asked: dict[str, Any]) -> dict[str, Any]:
    if asked["verb"] == "accept-loss":
        loss = Acceptance(
            asked["epoch"], asked["sink"], asked["reason"], asked["by"], asked["force"]
        )
        return {"accepted": transactions.accept_loss(loss).to_json()}
    if asked["verb"] == "commit":
        return _rows(transactions.commit(asked["transactions"], force=asked["force"]))
    if asked["verb"] == "abort":
        return _rows(transactions.abort(asked["transactions"], force=asked["force"]))
    return _rows(transactions.list())


def _rows(found: Iterable[OpenTransaction]) -> dict[str, Any]:
    now = time.time()
    return {"transactions": [one.to_json(now) for one in found]}
