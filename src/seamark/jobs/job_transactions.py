"""A declared job's open transactions, and the answers to `seamark txn` and `seamark audit`.

The command runs the program up to its ``job.run()``, with a request in a file: only the program
knows the sinks' addresses and passwords. The answer goes into a file beside it. The job's own
driver gives the same answers over REST.
"""

import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.api.settings import TRANSACTIONS_ANSWER
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.transactions import JobTransactions, OpenTransaction
from seamark.jobs.checkpoint_history import current_directory
from seamark.jobs.log_redaction import RedactedLog, job_redactor
from seamark.jobs.registry import driver_state
from seamark.model.errors import SeamarkError, UserError
from seamark.protocol.accept_loss import Acceptance
from seamark.protocol.verdicts import DriverState
from seamark.spark.hadoop_files import hadoop_settings, open_files


def checkpointed_job(
    spark: SparkSession, declared: JobDeclaration, store: CheckpointStore, **of_the_run: Any
) -> CheckpointedJob:
    """Return a declared job with its records in `store`; `of_the_run` are further fields."""
    return CheckpointedJob(
        declared.name,
        {uid: sink.sink for uid, sink in declared.sinks.items()},
        store,
        declared.checkpoint,
        {uid: sink.schema for uid, sink in declared.sinks.items()},
        hadoop_settings(spark),
        **of_the_run,
    )


def job_transactions(
    spark: SparkSession,
    declared: JobDeclaration,
    directory: str,
    driver: Callable[[CheckpointStore], DriverState],
    settled_below: int = 0,
) -> JobTransactions:
    """Return the open transactions of a declared job with its records in `directory`; `driver` and
    `settled_below` are for `JobTransactions`."""
    store = CheckpointStore(
        open_files(spark, directory, make=False),
        open_files(spark, declared.below(directory), make=False),
    )
    return JobTransactions(
        checkpointed_job(spark, declared, store),
        lambda: driver(store),
        lambda uri: open_files(spark, uri, make=False),
        settled_below,
    )


def answer_in_driver(
    spark: SparkSession,
    declared: JobDeclaration,
    directory: str,
    coordinator: Coordinator | None,
    asked: dict[str, Any],
) -> dict[str, Any]:
    """Do what is asked as `seamark txn` does, in the job's own driver; `coordinator` is its newest.
    The driver's own transactions are in use. Those of older generations can be ended: its own sweep
    would come within minutes."""
    settled = 0 if coordinator is None else coordinator.settled_below
    lives = DriverState.LIVES
    with job_transactions(spark, declared, directory, lambda _: lives, settled) as transactions:
        return _answer(transactions, asked)


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
                at = current_directory(storage, declared.directory)
                directory, driver = f"{storage}/{at}", partial(driver_state, storage, at)
                with job_transactions(spark, declared, directory, driver) as transactions:
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


def _rows(transactions: Iterable[OpenTransaction]) -> dict[str, Any]:
    now = time.time()
    return {"transactions": [one.to_json(now) for one in transactions]}
