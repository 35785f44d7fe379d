"""What every test needs: Spark's Python workers are this Python, and Spark stays on loopback.

The broker's fixtures are in `integration/conftest.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.class_archive import JAVA_OPTIONS
from tests.storage_servers import serving
from tidemark.dev.hdfs import LocalHdfs
from tidemark.dev.s3 import LocalS3

# Set for the whole process, so that programs which tests start inherit them.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
# The tokens of jobs, which killed drivers leave behind, are no business of the user's own.
os.environ.setdefault("TIDEMARK_HOME", tempfile.mkdtemp(prefix="tidemark-home-"))


@pytest.fixture(scope="session")
def hdfs() -> Iterator[LocalHdfs]:
    """A NameNode and a DataNode; a test that kills one brings it back."""
    yield from serving(LocalHdfs)


@pytest.fixture(scope="session")
def s3() -> Iterator[LocalS3]:
    """An S3 server; a test that kills it brings it back."""
    yield from serving(LocalS3)
