"""Seamark: state consistency for PySpark Structured Streaming.

`Job` declares and runs a job (`seamark/job.py`); the other public names are its settings, sources
and sinks, what a sink of one's own is made of (docs/write-a-sink.md), and every error that Seamark
raises (`seamark/model/errors.py`). They are loaded at first use, so that ``import seamark`` needs
no driver of any system.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from seamark.model.uncaught import show_mistakes

if TYPE_CHECKING:
    from seamark.api.config import CheckpointConfig as CheckpointConfig
    from seamark.api.config import CheckpointMode as CheckpointMode
    from seamark.api.config import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from seamark.api.config import StateBackend as StateBackend
    from seamark.api.ephemeral_storage import EphemeralStorage as EphemeralStorage
    from seamark.api.rest_config import RestConfig as RestConfig
    from seamark.api.restart_strategy import RestartStrategy as RestartStrategy
    from seamark.contracts.committables import dump_committable as dump_committable
    from seamark.contracts.committables import load_committable as load_committable
    from seamark.contracts.dead_letters import RefusedRow as RefusedRow
    from seamark.contracts.dead_letters import SelectiveWriter as SelectiveWriter
    from seamark.contracts.dead_letters import dead_letters_as_json as dead_letters_as_json
    from seamark.contracts.idempotent import IdempotentSink as IdempotentSink
    from seamark.contracts.sink import AbortOutcome as AbortOutcome
    from seamark.contracts.sink import CommitOutcome as CommitOutcome
    from seamark.contracts.sink import Committable as Committable
    from seamark.contracts.sink import Committer as Committer
    from seamark.contracts.sink import CommittingWriter as CommittingWriter
    from seamark.contracts.sink import Lingering as Lingering
    from seamark.contracts.sink import SinkContext as SinkContext
    from seamark.contracts.sink import TwoPhaseCommitSink as TwoPhaseCommitSink
    from seamark.contracts.sink import WriterContext as WriterContext
    from seamark.contracts.source import Source as Source
    from seamark.contracts.write_ahead import EpochToken as EpochToken
    from seamark.job import Job as Job
    from seamark.model.errors import AbortFailedError as AbortFailedError
    from seamark.model.errors import CheckpointError as CheckpointError
    from seamark.model.errors import CheckpointExpiredError as CheckpointExpiredError
    from seamark.model.errors import CommitFailedError as CommitFailedError
    from seamark.model.errors import ConfigurationError as ConfigurationError
    from seamark.model.errors import CorruptRecordError as CorruptRecordError
    from seamark.model.errors import DamagedCheckpointError as DamagedCheckpointError
    from seamark.model.errors import DecisionMissingError as DecisionMissingError
    from seamark.model.errors import DecisionVoidError as DecisionVoidError
    from seamark.model.errors import DrainedError as DrainedError
    from seamark.model.errors import DriverUnreachableError as DriverUnreachableError
    from seamark.model.errors import FencedError as FencedError
    from seamark.model.errors import LostTransactionError as LostTransactionError
    from seamark.model.errors import MissingDependencyError as MissingDependencyError
    from seamark.model.errors import OperationFailedError as OperationFailedError
    from seamark.model.errors import PreCommitError as PreCommitError
    from seamark.model.errors import PreflightError as PreflightError
    from seamark.model.errors import QueryHangsError as QueryHangsError
    from seamark.model.errors import RecordNotStoredError as RecordNotStoredError
    from seamark.model.errors import RestoreError as RestoreError
    from seamark.model.errors import SavepointError as SavepointError
    from seamark.model.errors import SeamarkError as SeamarkError
    from seamark.model.errors import SendRefusedError as SendRefusedError
    from seamark.model.errors import SparkDiedError as SparkDiedError
    from seamark.model.errors import StoppedError as StoppedError
    from seamark.model.errors import StorageHangsError as StorageHangsError
    from seamark.model.errors import TooManyFailedCheckpointsError as TooManyFailedCheckpointsError
    from seamark.model.errors import UserError as UserError
    from seamark.model.errors import WatermarkLostError as WatermarkLostError
    from seamark.model.errors import WriteRefusedError as WriteRefusedError
    from seamark.model.guarantee import SinkWay as SinkWay
    from seamark.plain_stream import write_stream as write_stream
    from seamark.savepoints.savepoint import Savepoint as Savepoint
    from seamark.sinks.delta import DeltaSink as DeltaSink
    from seamark.sinks.files import FileSink as FileSink
    from seamark.sinks.kafka import KafkaSink as KafkaSink
    from seamark.sinks.mysql import MySQLSink as MySQLSink
    from seamark.sinks.postgres import PostgresSink as PostgresSink
    from seamark.sinks.redis import RedisSink as RedisSink
    from seamark.sinks.sqlite import SQLiteSink as SQLiteSink
    from seamark.sinks.write_ahead import WriteAheadSink as WriteAheadSink
    from seamark.sources.datagen import DatagenSource as DatagenSource
    from seamark.sources.files import FileSource as FileSource
    from seamark.sources.kafka import KafkaSource as KafkaSource
    from seamark.sources.socket import SocketSource as SocketSource

_HOMES = {
    "AbortFailedError": "seamark.model.errors",
    "AbortOutcome": "seamark.contracts.sink",
    "CheckpointConfig": "seamark.api.config",
    "CheckpointError": "seamark.model.errors",
    "CheckpointExpiredError": "seamark.model.errors",
    "CheckpointMode": "seamark.api.config",
    "CommitFailedError": "seamark.model.errors",
    "CommitOutcome": "seamark.contracts.sink",
    "Committable": "seamark.contracts.sink",
    "Committer": "seamark.contracts.sink",
    "CommittingWriter": "seamark.contracts.sink",
    "ConfigurationError": "seamark.model.errors",
    "CorruptRecordError": "seamark.model.errors",
    "DamagedCheckpointError": "seamark.model.errors",
    "DatagenSource": "seamark.sources.datagen",
    "DecisionMissingError": "seamark.model.errors",
    "DecisionVoidError": "seamark.model.errors",
    "DeltaSink": "seamark.sinks.delta",
    "DrainedError": "seamark.model.errors",
    "DriverUnreachableError": "seamark.model.errors",
    "EphemeralStorage": "seamark.api.ephemeral_storage",
    "EpochToken": "seamark.contracts.write_ahead",
    "ExternalizedCheckpointRetention": "seamark.api.config",
    "FencedError": "seamark.model.errors",
    "FileSink": "seamark.sinks.files",
    "FileSource": "seamark.sources.files",
    "IdempotentSink": "seamark.contracts.idempotent",
    "Job": "seamark.job",
    "KafkaSink": "seamark.sinks.kafka",
    "KafkaSource": "seamark.sources.kafka",
    "Lingering": "seamark.contracts.sink",
    "LostTransactionError": "seamark.model.errors",
    "MissingDependencyError": "seamark.model.errors",
    "MySQLSink": "seamark.sinks.mysql",
    "OperationFailedError": "seamark.model.errors",
    "PostgresSink": "seamark.sinks.postgres",
    "PreCommitError": "seamark.model.errors",
    "PreflightError": "seamark.model.errors",
    "QueryHangsError": "seamark.model.errors",
    "RecordNotStoredError": "seamark.model.errors",
    "RedisSink": "seamark.sinks.redis",
    "RefusedRow": "seamark.contracts.dead_letters",
    "RestConfig": "seamark.api.rest_config",
    "RestartStrategy": "seamark.api.restart_strategy",
    "RestoreError": "seamark.model.errors",
    "SQLiteSink": "seamark.sinks.sqlite",
    "Savepoint": "seamark.savepoints.savepoint",
    "SavepointError": "seamark.model.errors",
    "SelectiveWriter": "seamark.contracts.dead_letters",
    "SendRefusedError": "seamark.model.errors",
    "SinkContext": "seamark.contracts.sink",
    "SinkWay": "seamark.model.guarantee",
    "SocketSource": "seamark.sources.socket",
    "Source": "seamark.contracts.source",
    "SparkDiedError": "seamark.model.errors",
    "StateBackend": "seamark.api.config",
    "StoppedError": "seamark.model.errors",
    "StorageHangsError": "seamark.model.errors",
    "SeamarkError": "seamark.model.errors",
    "TooManyFailedCheckpointsError": "seamark.model.errors",
    "TwoPhaseCommitSink": "seamark.contracts.sink",
    "UserError": "seamark.model.errors",
    "WatermarkLostError": "seamark.model.errors",
    "WriteAheadSink": "seamark.sinks.write_ahead",
    "WriteRefusedError": "seamark.model.errors",
    "WriterContext": "seamark.contracts.sink",
    "dead_letters_as_json": "seamark.contracts.dead_letters",
    "dump_committable": "seamark.contracts.committables",
    "load_committable": "seamark.contracts.committables",
    "write_stream": "seamark.plain_stream",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seamark' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


show_mistakes()

if "SEAMARK_RUN" in os.environ:  # `seamark run` started this program
    from seamark.operations.run import prepare_program

    prepare_program()
