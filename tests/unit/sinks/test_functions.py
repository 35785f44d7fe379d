"""A user's function is refused where it is given, if it cannot be called with what it will get."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

import seamark as sm
from seamark.streaming.trial_sinks import for_each_row


def one(frame: Any) -> None: ...


def two(frame: Any, token: Any) -> None: ...


def three(frame: Any, token: Any, other: Any) -> None: ...


def named(frame: Any, token: Any, *, other: Any, secret: str = "hunter\n2") -> None: ...


def defaults(frame: Any, token: Any = None, other: Any = None) -> None: ...


def any_number(*given: Any) -> None: ...


class Callee:
    def __call__(self, frame: Any, token: Any) -> None: ...

    def short(self, frame: Any) -> None: ...


OF_TWO: list[Any] = [
    two, defaults, any_number, Callee(), functools.partial(three, other=1),
    functools.partial(three, 1), lambda f, t: None, Mock(), max, dict.update,
]  # fmt: skip
NOT_OF_TWO: list[Any] = [
    one, three, named, Callee().short, functools.partial(two, 1), lambda: None
]  # fmt: skip


@pytest.mark.parametrize("function", OF_TWO)
def test_a_function_of_an_epoch_takes_two_arguments(function: Callable[..., None]) -> None:
    sm.WriteAheadSink.foreach_batch(function)


@pytest.mark.parametrize("function", NOT_OF_TWO)
@pytest.mark.parametrize(("with_epoch", "second"), [(False, "token"), (True, "number")])
def test_any_other_is_refused(function: Callable[..., None], with_epoch: bool, second: str) -> None:
    said = rf"foreach_batch: .*\(.* has other parameters.* DataFrame and the epoch's {second}"
    with pytest.raises(sm.ConfigurationError, match=said) as error:
        sm.WriteAheadSink.foreach_batch(function, with_epoch=with_epoch)
    assert "\n" not in str(error.value)
    assert "hunter" not in str(error.value)


def test_a_function_of_a_row_takes_one() -> None:
    for_each_row(one)
    for_each_row(print)
    with pytest.raises(sm.ConfigurationError, match=r"foreach: two\(frame.*takes a row"):
        for_each_row(two)


async def nothing(*_: Any) -> None: ...


def yields(*_: Any) -> Any:
    yield


async def yields_later(*_: Any) -> Any:
    yield


class Lazy:
    async def __call__(self, *_: Any) -> None: ...

    async def short(self, frame: Any) -> None: ...


class Processes:
    async def process(self, row: Any) -> None: ...


class Opens:
    def open(self, *_: Any) -> Any:
        yield

    def process(self, row: Any) -> None: ...


LAZY: list[Any] = [
    nothing, yields, yields_later, Lazy(), functools.partial(nothing, 1), Lazy().short,
    functools.partial(Lazy(), 1),
]  # fmt: skip


@pytest.mark.parametrize("function", LAZY)
def test_a_function_whose_call_runs_nothing_of_it_is_refused(function: Any) -> None:
    """Its epochs would be recorded as sent."""
    said = "a call of .* runs nothing of it, as it is async or has a yield; give a plain function"

    class Sends(sm.WriteAheadSink):
        def describe(self) -> str:
            return "sends"

        send = staticmethod(function)

    for make in (
        sm.WriteAheadSink.foreach_batch,
        for_each_row,
        lambda _: Sends().check_transaction_scope(Mock()),
    ):
        with pytest.raises(sm.ConfigurationError, match=said):
            make(function)


@pytest.mark.parametrize(("writer", "method"), [(Opens, "open"), (Processes, "process")])
def test_so_is_one_of_the_methods_for_a_row(writer: Any, method: str) -> None:
    with pytest.raises(sm.ConfigurationError, match=f"foreach: {method}: a call of"):
        for_each_row(writer())
