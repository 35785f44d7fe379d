"""Tidemark: state consistency for PySpark Structured Streaming.

`Job` declares and runs a job (`tidemark/job.py`); the other public names are its settings, sources
and sinks. They are loaded at first use, so that ``import tidemark`` needs no driver of any system.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.api.config import CheckpointConfig as CheckpointConfig
    from tidemark.job import Job as Job
    from tidemark.job import write_stream as write_stream
    from tidemark.model.errors import TidemarkError as TidemarkError
    from tidemark.sinks.files import FileSink as FileSink
    from tidemark.sinks.kafka import KafkaSink as KafkaSink
    from tidemark.sinks.sqlite import SQLiteSink as SQLiteSink
    from tidemark.sources.datagen import DatagenSource as DatagenSource
    from tidemark.sources.files import FileSource as FileSource
    from tidemark.sources.kafka import KafkaSource as KafkaSource
    from tidemark.sources.socket import SocketSource as SocketSource

_HOMES = {
    "CheckpointConfig": "tidemark.api.config",
    "DatagenSource": "tidemark.sources.datagen",
    "FileSink": "tidemark.sinks.files",
    "FileSource": "tidemark.sources.files",
    "Job": "tidemark.job",
    "KafkaSink": "tidemark.sinks.kafka",
    "KafkaSource": "tidemark.sources.kafka",
    "SQLiteSink": "tidemark.sinks.sqlite",
    "SocketSource": "tidemark.sources.socket",
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
