"""How: many threads ask for one page at once, and its making is counted."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from seamark.dashboard import shared_pages
from seamark.dashboard.shared_pages import Page, Shared


def test_a_page_is_made_once_however_many_ask_for_it() -> None:
    pages: Shared[Page] = Shared()
    made = []
    together = threading.Barrier(20)

    def make() -> Page:
        made.append(1)
        time.sleep(0.05)
        return Page.of({"made": len(made)})

    def ask(_: int) -> Page:
        together.wait()
        return pages.get("/jobs", make)

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(ask, range(20)))
    assert len(made) == 1
    assert {id(page) for page in found} == {id(found[0])}
    assert pages.fresh("/jobs") is found[0]
    assert pages.fresh("/other") is None


def test_a_page_is_made_again_when_it_is_old_and_forgotten_when_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_pages, "FRESH_S", 0.0)
    monkeypatch.setattr(shared_pages, "REST", 0)
    pages: Shared[int] = Shared()
    assert [pages.get("n", lambda n=n: n) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]

    def fails() -> int:
        raise OSError("the storage is away")

    with pytest.raises(OSError, match="away"):
        pages.get("n", fails)
    assert pages.get("n", lambda: 7) == 7


def test_what_was_slow_to_make_rests_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_pages, "FRESH_S", 0.0)
    monkeypatch.setattr(shared_pages, "REST", 1000)
    pages: Shared[int] = Shared()
    assert pages.get("slow", lambda: time.sleep(0.05) or 1) == 1
    assert pages.fresh("slow") == 1
    monkeypatch.setattr(shared_pages, "STALE_S", 0.0)
    pages.get("capped", lambda: time.sleep(0.05) or 1)
    assert pages.fresh("capped") is None


def test_what_is_fresh_is_made_again_for_who_needs_it_newer() -> None:
    pages: Shared[int] = Shared()
    assert pages.get("n", lambda: 1) == 1
    moment_s = time.monotonic()
    assert pages.get("n", lambda: 2) == 1
    assert pages.get("n", lambda: 3, moment_s) == 3
    assert pages.get("n", lambda: 4, moment_s) == 3


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_pages, "KEPT", 2)
    pages: Shared[int] = Shared()
    for number in range(3):
        pages.get(str(number), lambda: 1)
    assert [pages.fresh(str(number)) for number in range(3)] == [None, 1, 1]


def test_the_etag_is_of_the_bytes() -> None:
    assert Page.of({"a": 1}).etag == Page.of({"a": 1}).etag != Page.of({"a": 2}).etag
