"""A real browser: Debian's Chromium, driven by Playwright.

Looked for on the machine (Debian: apt-get install chromium); where it is missing and the tests run
as root on a Debian, as in CI, it is installed. Where it cannot be had, `browser` raises
`NotToBeHadError` (`tests/servers/needed.py`).

`Visit` is one tab. It notes faults: an error in the console, an exception, a request to a foreign
server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from tests.servers.needed import NotToBeHadError

PATIENCE_MS = 60_000


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start it; it has ended afterwards."""
    program = _program()
    with sync_playwright() as playwright:
        # Root may not use Chromium's sandbox; all visited pages are ours.
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield started
        finally:
            started.close()


def _program() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    tried = "no chromium on this machine (apt-get install chromium)"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NotToBeHadError(tried)
    apt = ["apt-get", "-qq", "-oDPkg::Lock::Timeout=300"]
    with (Path(tempfile.gettempdir()) / "seamark-tests-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest's workers are several
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            done = subprocess.run(
                [*apt, *arguments],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                timeout=600,
            )
            if done.returncode:
                raise NotToBeHadError(f"{tried}, and it cannot be installed: {done.stderr.strip()}")
    found = shutil.which("chromium")
    if found is None:
        raise NotToBeHadError(f"{tried}, and Debian's package does not bring it")
    return found


class Visit:
    """One tab at one server; `page` is Playwright's. `faults` are the faults so far."""

    def __init__(
        self,
        browser: Browser,
        address: str,
        *,
        width: int = 1440,
        colours: Literal["light", "dark"] = "light",
    ) -> None:
        self.url = address.partition("/#")[0]
        self.faults: list[str] = []
        self._context = browser.new_context(
            viewport={"width": width, "height": 844 if width < 700 else 900}, color_scheme=colours
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("request", self._on_request)
        self.page.goto(address)

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme != "data" and f"{parts.scheme}://{parts.netloc}" != self.url:
            self.faults.append(f"a request to {request.url}")

    def open(self, path: str) -> None:
        """Go to one of the dashboard's pages: the part of the address behind ``#/``."""
        self.page.goto(f"{self.url}/#/{path}")

    def wait_for(self, selector: str) -> Any:
        """Wait until something is seen; return it."""
        found = self.page.locator(selector).first
        found.wait_for()
        return found

    def log_in(self, token: str) -> None:
        self.page.get_by_label("Address or token").fill(token)
        self.page.get_by_role("button", name="Log in").click()

    def take_checkpoint(self) -> None:
        """On a job's page: have it take a checkpoint, and see that it is complete."""
        self.page.get_by_role("button", name="Checkpoint now").click()
        self.page.get_by_role("button", name="Take it").click()
        dialog = self.page.get_by_role("dialog").filter(
            has_text=re.compile(r"Checkpoint \d+ is complete")
        )
        dialog.wait_for()
        self.page.get_by_role("button", name="Close").click()

    def overflow(self) -> int:
        """Return how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def close(self) -> None:
        self._context.close()
