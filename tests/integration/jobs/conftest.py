"""The targets of jobs in several files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.http_endpoint import HttpEndpoint, http_endpoint


@pytest.fixture
def endpoints(tmp_path: Path) -> Iterator[dict[str, HttpEndpoint]]:
    """Two HTTP endpoints, each a process of its own with a directory of its own."""
    for name in ("kept", "plain"):
        (tmp_path / name).mkdir()
    with http_endpoint(tmp_path / "kept") as kept, http_endpoint(tmp_path / "plain") as plain:
        yield {"kept": kept, "plain": plain}
