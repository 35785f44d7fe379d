"""Seamark: state consistency for PySpark Structured Streaming.

`Job` declares and runs a job (`seamark/job.py`). The other public names are its settings, sources
and sinks, the base classes for a sink of your own (docs/write-a-sink.md), and all errors of Seamark
(`seamark/model/errors.py`). They are loaded at first use: ``import seamark`` needs no driver.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from seamark.model.packages import VERSION
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
    from seamark.contracts.keyed_process import KeyedContext as KeyedContext
    from seamark.contracts.keyed_process import KeyedProcessFunction as KeyedProcessFunction
    from seamark.contracts.keyed_process import StateHandle as StateHandle
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
    from seamark.datasource.options import sink_options as sink_options
    from seamark.job import Job as Job
    from seamark.model.errors import *  # noqa: F403 - each is public
    from seamark.model.guarantee import SinkWay as SinkWay
    from seamark.run.debezium import debezium as debezium
    from seamark.run.keyed_process import keyed_process as keyed_process
    from seamark.run.process import process as process
    from seamark.savepoints.savepoint import Savepoint as Savepoint
    from seamark.sinks.delta import DeltaSink as DeltaSink
    from seamark.sinks.files import FileSink as FileSink
    from seamark.sinks.iceberg import IcebergSink as IcebergSink
    from seamark.sinks.kafka import KafkaSink as KafkaSink
    from seamark.sinks.mysql import MySQLSink as MySQLSink
    from seamark.sinks.postgres import PostgresSink as PostgresSink
    from seamark.sinks.redis import RedisSink as RedisSink
    from seamark.sinks.sql import SqlSink as SqlSink
    from seamark.sinks.sqlite import SQLiteSink as SQLiteSink
    from seamark.sinks.write_ahead import WriteAheadSink as WriteAheadSink
    from seamark.sinks.write_ahead.console import ConsoleSink as ConsoleSink
    from seamark.sources.datagen import DatagenSource as DatagenSource
    from seamark.sources.files import FileSource as FileSource
    from seamark.sources.kafka import KafkaSource as KafkaSource
    from seamark.sources.socket import SocketSource as SocketSource
    from seamark.streaming.from_registry import from_registry as from_registry
    from seamark.streaming.writer import write_stream as write_stream

_NAMES = {
    "seamark.api.config": """
        CheckpointConfig CheckpointMode ExternalizedCheckpointRetention StateBackend
    """,
    "seamark.api.ephemeral_storage": "EphemeralStorage",
    "seamark.api.rest_config": "RestConfig",
    "seamark.api.restart_strategy": "RestartStrategy",
    "seamark.contracts.committables": "dump_committable load_committable",
    "seamark.contracts.dead_letters": "RefusedRow SelectiveWriter dead_letters_as_json",
    "seamark.contracts.idempotent": "IdempotentSink",
    "seamark.contracts.keyed_process": "KeyedContext KeyedProcessFunction StateHandle",
    "seamark.contracts.sink": """
        AbortOutcome CommitOutcome Committable Committer CommittingWriter Lingering SinkContext
        TwoPhaseCommitSink WriterContext
    """,
    "seamark.contracts.source": "Source",
    "seamark.contracts.write_ahead": "EpochToken",
    "seamark.datasource.options": "sink_options",
    "seamark.job": "Job",
    "seamark.model.errors": """
        AbortFailedError CheckpointError CheckpointExpiredError CommitFailedError
        ConfigurationError CorruptRecordError DamagedCheckpointError DecisionMissingError
        DecisionVoidError DrainedError DriverUnreachableError FencedError LossRefusedError
        LostTransactionError MissingDependencyError OperationFailedError PreCommitError
        PreflightError QueryHangsError RecordNotStoredError RestoreError RowsDeletedError
        SavepointError SeamarkError SendRefusedError SparkDiedError StateWrittenTwiceError
        StoppedError StorageHangsError TooManyFailedCheckpointsError UnreadableRecordError UserError
        WatermarkLostError WriteRefusedError
    """,
    "seamark.model.guarantee": "SinkWay",
    "seamark.streaming.from_registry": "from_registry",
    "seamark.streaming.writer": "write_stream",
    "seamark.run.debezium": "debezium",
    "seamark.run.keyed_process": "keyed_process",
    "seamark.run.process": "process",
    "seamark.savepoints.savepoint": "Savepoint",
    "seamark.sinks.delta": "DeltaSink",
    "seamark.sinks.iceberg": "IcebergSink",
    "seamark.sinks.files": "FileSink",
    "seamark.sinks.kafka": "KafkaSink",
    "seamark.sinks.mysql": "MySQLSink",
    "seamark.sinks.postgres": "PostgresSink",
    "seamark.sinks.redis": "RedisSink",
    "seamark.sinks.sql": "SqlSink",
    "seamark.sinks.sqlite": "SQLiteSink",
    "seamark.sinks.write_ahead": "WriteAheadSink",
    "seamark.sinks.write_ahead.console": "ConsoleSink",
    "seamark.sources.datagen": "DatagenSource",
    "seamark.sources.files": "FileSource",
    "seamark.sources.kafka": "KafkaSource",
    "seamark.sources.socket": "SocketSource",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)
__version__ = VERSION
_WITH_REST = ("seamark.job", "seamark.streaming")
_WITH_SPARK = ("seamark.job", "seamark.streaming", "seamark.run", "seamark.savepoints")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seamark' has no attribute {name!r}")
    if _HOMES[name].startswith(_WITH_SPARK):
        from seamark.spark.jars import require_pyspark

        require_pyspark()
    if _HOMES[name].startswith(_WITH_REST):
        from seamark.model.packages import require_driver_packages

        require_driver_packages()
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


show_mistakes()

if "SEAMARK_RUN" in os.environ:  # `seamark run` started this program
    from seamark.operations.run import prepare_program

    prepare_program()
