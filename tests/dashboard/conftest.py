"""One browser for the tests of a file; without one they skip and say why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.chromium import browser
from tests.servers.server_process import NotToBeHadError


# Not for the session: Playwright holds an event loop in this thread, and others need theirs.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with contextlib.ExitStack() as stack:
        try:
            started = stack.enter_context(browser())
        except NotToBeHadError as error:
            pytest.skip(f"no browser: {error}")
        yield started
