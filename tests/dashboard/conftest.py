"""One browser for the tests of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.chromium import browser
from tests.servers.needed import needed


# Not for the session: Playwright holds an event loop in this thread, and others need theirs.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with contextlib.ExitStack() as stack:
        with needed("a browser"):
            started = stack.enter_context(browser())
        yield started
