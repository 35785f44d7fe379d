"""A broker for the matrix, apart from the one that `tests/integration` shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemark.dev.kafka import LocalKafka


@pytest.fixture(scope="session")
def chaos_kafka() -> Iterator[LocalKafka]:
    """A broker of the defaults."""
    with LocalKafka() as cluster:
        yield cluster
