"""Tidemark: state consistency for PySpark Structured Streaming.

`Job` declares and runs a job (`tidemark/job.py`); the other public names are its settings, sources
and sinks, what a sink of one's own is made of (docs/write-a-sink.md), and every error that Tidemark
raises (`tidemark/model/errors.py`). They are loaded at first use, so that ``import tidemark`` needs
no driver of any system.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from tidemark.model.uncaught import show_mistakes

if TYPE_CHECKING:
    from tidemark.api.config import CheckpointConfig as CheckpointConfig
    from tidemark.api.config import CheckpointMode as CheckpointMode
    from tidemark.api.config import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from tidemark.api.config import StateBackend as StateBackend
    from tidemark.api.ephemeral_storage import EphemeralStorage as EphemeralStorage
    from tidemark.api.rest_config import RestConfig as RestConfig
    from tidemark.api.restart_strategy import RestartStrategy as RestartStrategy
    from tidemark.contracts.committables import dump_committable as dump_committable
    from tidemark.contracts.committables import load_committable as load_committable
    from tidemark.contracts.dead_letters import RefusedRow as RefusedRow
    from tidemark.contracts.dead_letters import SelectiveWriter as SelectiveWriter
    from tidemark.contracts.dead_letters import dead_letters_as_json as dead_letters_as_json
    from tidemark.contracts.idempotent import IdempotentSink as IdempotentSink
    from tidemark.contracts.sink import AbortOutcome as AbortOutcome
    from tidemark.contracts.sink import CommitOutcome as CommitOutcome
    from tidemark.contracts.sink import Committable as Committable
    from tidemark.contracts.sink import Committer as Committer
    from tidemark.contracts.sink import CommittingWriter as CommittingWriter
    from tidemark.contracts.sink import Lingering as Lingering
    from tidemark.contracts.sink import SinkContext as SinkContext
    from tidemark.contracts.sink import TwoPhaseCommitSink as TwoPhaseCommitSink
    from tidemark.contracts.sink import WriterContext as WriterContext
    from tidemark.contracts.source import Source as Source
    from tidemark.contracts.write_ahead import EpochToken as EpochToken
    from tidemark.job import Job as Job
    from tidemark.job import write_stream as write_stream
    from tidemark.model.errors import AbortFailedError as AbortFailedError
    from tidemark.model.errors import CheckpointError as CheckpointError
    from tidemark.model.errors import CheckpointExpiredError as CheckpointExpiredError
    from tidemark.model.errors import CommitFailedError as CommitFailedError
    from tidemark.model.errors import ConfigurationError as ConfigurationError
    from tidemark.model.errors import CorruptRecordError as CorruptRecordError
    from tidemark.model.errors import DamagedCheckpointError as DamagedCheckpointError
    from tidemark.model.errors import DecisionMissingError as DecisionMissingError
    from tidemark.model.errors import DecisionVoidError as DecisionVoidError
    from tidemark.model.errors import DrainedError as DrainedError
    from tidemark.model.errors import DriverUnreachableError as DriverUnreachableError
    from tidemark.model.errors import FencedError as FencedError
    from tidemark.model.errors import LostTransactionError as LostTransactionError
    from tidemark.model.errors import MissingDependencyError as MissingDependencyError
    from tidemark.model.errors import OperationFailedError as OperationFailedError
    from tidemark.model.errors import PreCommitError as PreCommitError
    from tidemark.model.errors import PreflightError as PreflightError
    from tidemark.model.errors import QueryHangsError as QueryHangsError
    from tidemark.model.errors import RecordNotStoredError as RecordNotStoredError
    from tidemark.model.errors import RestoreError as RestoreError
    from tidemark.model.errors import SavepointError as SavepointError
    from tidemark.model.errors import SendRefusedError as SendRefusedError
    from tidemark.model.errors import SparkDiedError as SparkDiedError
    from tidemark.model.errors import StoppedError as StoppedError
    from tidemark.model.errors import StorageHangsError as StorageHangsError
    from tidemark.model.errors import TidemarkError as TidemarkError
    from tidemark.model.errors import TooManyFailedCheckpointsError as TooManyFailedCheckpointsError
    from tidemark.model.errors import UserError as UserError
    from tidemark.model.errors import WatermarkLostError as WatermarkLostError
    from tidemark.model.errors import WriteRefusedError as WriteRefusedError
    from tidemark.model.guarantee import SinkWay as SinkWay
    from tidemark.savepoints.savepoint import Savepoint as Savepoint
    from tidemark.sinks.delta import DeltaSink as DeltaSink
    from tidemark.sinks.files import FileSink as FileSink
    from tidemark.sinks.kafka import KafkaSink as KafkaSink
    from tidemark.sinks.mysql import MySQLSink as MySQLSink
    from tidemark.sinks.postgres import PostgresSink as PostgresSink
    from tidemark.sinks.redis import RedisSink as RedisSink
    from tidemark.sinks.sqlite import SQLiteSink as SQLiteSink
    from tidemark.sinks.write_ahead import WriteAheadSink as WriteAheadSink
    from tidemark.sources.datagen import DatagenSource as DatagenSource
    from tidemark.sources.files import FileSource as FileSource
    from tidemark.sources.kafka import KafkaSource as KafkaSource
    from tidemark.sources.socket import SocketSource as SocketSource

_HOMES = {
    "AbortFailedError": "tidemark.model.errors",
    "AbortOutcome": "tidemark.contracts.sink",
    "CheckpointConfig": "tidemark.api.config",
    "CheckpointError": "tidemark.model.errors",
    "CheckpointExpiredError": "tidemark.model.errors",
    "CheckpointMode": "tidemark.api.config",
    "CommitFailedError": "tidemark.model.errors",
    "CommitOutcome": "tidemark.contracts.sink",
    "Committable": "tidemark.contracts.sink",
    "Committer": "tidemark.contracts.sink",
    "CommittingWriter": "tidemark.contracts.sink",
    "ConfigurationError": "tidemark.model.errors",
    "CorruptRecordError": "tidemark.model.errors",
    "DamagedCheckpointError": "tidemark.model.errors",
    "DatagenSource": "tidemark.sources.datagen",
    "DecisionMissingError": "tidemark.model.errors",
    "DecisionVoidError": "tidemark.model.errors",
    "DeltaSink": "tidemark.sinks.delta",
    "DrainedError": "tidemark.model.errors",
    "DriverUnreachableError": "tidemark.model.errors",
    "EphemeralStorage": "tidemark.api.ephemeral_storage",
    "EpochToken": "tidemark.contracts.write_ahead",
    "ExternalizedCheckpointRetention": "tidemark.api.config",
    "FencedError": "tidemark.model.errors",
    "FileSink": "tidemark.sinks.files",
    "FileSource": "tidemark.sources.files",
    "IdempotentSink": "tidemark.contracts.idempotent",
    "Job": "tidemark.job",
    "KafkaSink": "tidemark.sinks.kafka",
    "KafkaSource": "tidemark.sources.kafka",
    "Lingering": "tidemark.contracts.sink",
    "LostTransactionError": "tidemark.model.errors",
    "MissingDependencyError": "tidemark.model.errors",
    "MySQLSink": "tidemark.sinks.mysql",
    "OperationFailedError": "tidemark.model.errors",
    "PostgresSink": "tidemark.sinks.postgres",
    "PreCommitError": "tidemark.model.errors",
    "PreflightError": "tidemark.model.errors",
    "QueryHangsError": "tidemark.model.errors",
    "RecordNotStoredError": "tidemark.model.errors",
    "RedisSink": "tidemark.sinks.redis",
    "RefusedRow": "tidemark.contracts.dead_letters",
    "RestConfig": "tidemark.api.rest_config",
    "RestartStrategy": "tidemark.api.restart_strategy",
    "RestoreError": "tidemark.model.errors",
    "SQLiteSink": "tidemark.sinks.sqlite",
    "Savepoint": "tidemark.savepoints.savepoint",
    "SavepointError": "tidemark.model.errors",
    "SelectiveWriter": "tidemark.contracts.dead_letters",
    "SendRefusedError": "tidemark.model.errors",
    "SinkContext": "tidemark.contracts.sink",
    "SinkWay": "tidemark.model.guarantee",
    "SocketSource": "tidemark.sources.socket",
    "Source": "tidemark.contracts.source",
    "SparkDiedError": "tidemark.model.errors",
    "StateBackend": "tidemark.api.config",
    "StoppedError": "tidemark.model.errors",
    "StorageHangsError": "tidemark.model.errors",
    "TidemarkError": "tidemark.model.errors",
    "TooManyFailedCheckpointsError": "tidemark.model.errors",
    "TwoPhaseCommitSink": "tidemark.contracts.sink",
    "UserError": "tidemark.model.errors",
    "WatermarkLostError": "tidemark.model.errors",
    "WriteAheadSink": "tidemark.sinks.write_ahead",
    "WriteRefusedError": "tidemark.model.errors",
    "WriterContext": "tidemark.contracts.sink",
    "dead_letters_as_json": "tidemark.contracts.dead_letters",
    "dump_committable": "tidemark.contracts.committables",
    "load_committable": "tidemark.contracts.committables",
    "write_stream": "tidemark.job",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


show_mistakes()

if "TIDEMARK_RUN" in os.environ:  # `tidemark run` started this program
    from tidemark.operations.run import prepare_program

    prepare_program()
