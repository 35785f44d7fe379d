"""A test without its server is skipped with the reason; in CI it fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from seamark.model.errors import MissingDependencyError


class NotToBeHadError(Exception):
    """A server cannot be started here; names the attempts."""


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Wraps the start of the server `what`. With ``CI=true`` nothing may be missing: a run without
    any test of a sink would look as green as one with all tests passed."""
    try:
        yield
    except (NotToBeHadError, MissingDependencyError) as error:
        end = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        end(f"{what}: {error}")
