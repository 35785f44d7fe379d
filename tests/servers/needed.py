"""A test whose server cannot be had is skipped with the reason; in CI it fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from seamark.model.errors import MissingDependencyError
from tests.servers.server_process import NotToBeHadError


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Around the start of `what`. With ``CI=true`` nothing may be missing: a run that had skipped
    every test of a sink would look as green as one that had passed them."""
    try:
        yield
    except (NotToBeHadError, MissingDependencyError) as error:
        end = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        end(f"{what}: {error}")
