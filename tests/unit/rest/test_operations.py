"""The operations a driver remembers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from seamark.rest.operations import KEPT, Operations


def ended() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result({})
    return future


def test_the_oldest_is_forgotten_but_none_that_is_under_way() -> None:
    operations = Operations()

    def begin(id_: str, start: Callable[[], Future[Any]]) -> None:
        operations.begin("savepoint", id_, start, lambda result: result)

    begin("long", Future)
    for number in range(KEPT + 1):
        begin(str(number), ended)
    assert operations.find("savepoint", "long") is not None
    known = [operations.find("savepoint", str(number)) for number in range(KEPT + 1)]
    assert known[:2] == [None, None] and None not in known[2:]
