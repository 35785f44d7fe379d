"""Tidemark: state consistency for PySpark Structured Streaming.

`Job` declares and runs a job (`tidemark/job.py`); the other public names are its settings, sources
and sinks. They are loaded at first use, so that ``import tidemark`` needs no driver of any system.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.api.config import CheckpointConfig as CheckpointConfig
    from tidemark.api.config import CheckpointMode as CheckpointMode
    from tidemark.api.config import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from tidemark.api.config import StateBackend as StateBackend
    from tidemark.api.ephemeral_storage import EphemeralStorage as EphemeralStorage
    from tidemark.api.restart_strategy import RestartStrategy as RestartStrategy
    from tidemark.job import Job as Job
    from tidemark.job import write_stream as write_stream
    from tidemark.model.errors import TidemarkError as TidemarkError
    from tidemark.sinks.files import FileSink as FileSink
    from tidemark.sinks.kafka import KafkaSink as KafkaSink
    from tidemark.sinks.mysql import MySQLSink as MySQLSink
    from tidemark.sinks.postgres import PostgresSink as PostgresSink
    from tidemark.sinks.sqlite import SQLiteSink as SQLiteSink
    from tidemark.sources.datagen import DatagenSource as DatagenSource
    from tidemark.sources.files import FileSource as FileSource
    from tidemark.sources.kafka import KafkaSource as KafkaSource
    from tidemark.sources.socket import SocketSource as SocketSource

_HOMES = {
    "CheckpointConfig": "tidemark.api.config",
    "CheckpointMode": "tidemark.api.config",
    "DatagenSource": "tidemark.sources.datagen",
    "EphemeralStorage": "tidemark.api.ephemeral_storage",
    "ExternalizedCheckpointRetention": "tidemark.api.config",
    "FileSink": "tidemark.sinks.files",
    "FileSource": "tidemark.sources.files",
    "Job": "tidemark.job",
    "KafkaSink": "tidemark.sinks.kafka",
    "KafkaSource": "tidemark.sources.kafka",
    "MySQLSink": "tidemark.sinks.mysql",
    "PostgresSink": "tidemark.sinks.postgres",
    "RestartStrategy": "tidemark.api.restart_strategy",
    "SQLiteSink": "tidemark.sinks.sqlite",
    "SocketSource": "tidemark.sources.socket",
    "StateBackend": "tidemark.api.config",
    "TidemarkError": "tidemark.model.errors",
    "write_stream": "tidemark.job",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


if "TIDEMARK_RUN" in os.environ:  # `tidemark run` started this program
    from tidemark.operations.run import show_user_errors_as_paragraphs

    show_user_errors_as_paragraphs()
