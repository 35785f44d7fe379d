"""Runs a procedure of the protocol one port call at a time.

The procedures yield at their named points only, but a driver may sleep between any two calls to its
ports. So each call to a port suspends the procedure; after the call has been made, the procedure is
started afresh and given the recorded answers of all calls so far. It is sound: a procedure is a
function of its arguments and of the answers: no I/O, clock or thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import SeamarkError
from seamark.protocol.points import Point


@dataclass(frozen=True)
class Call:
    """One call wanted by a procedure."""

    name: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(getattr(a, 'value', a)) for a in self.args)})"


class Suspended(BaseException):
    """Unwinds a procedure at a call without an answer yet."""

    def __init__(self, call: Call) -> None:
        self.call = call


Answer = tuple[Any, SeamarkError | None]


class JournaledPort:
    """Stands for `Records` or `Sinks`: answers from the journal, else suspends."""

    def __init__(self, journal: Iterator[Answer], uids: tuple[str, ...] = ()) -> None:
        self._journal = journal
        self.uids = uids

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            for answer, error in self._journal:
                if error is not None:
                    raise error
                return answer
            raise Suspended(Call(name, args))

        return call


def stepwise(
    procedure: Callable[[Any, Any], Any],
    uids: tuple[str, ...],
    execute: Callable[[Call], Generator[Any, None, Any]],
    passed: Callable[[Point], None],
) -> Generator[Any, None, Any]:
    """Run `procedure(records, sinks)` to its end and return its result.

    Yields before every call; `execute` then makes it (itself in steps, if it yields); `passed` is
    told each point as it is reached.
    """
    answers: list[Answer] = []
    told = 0
    while True:
        points: list[Point] = []
        journal = iter(answers)
        call = None
        try:
            result = procedure(JournaledPort(journal), JournaledPort(journal, uids))
            if isinstance(result, Generator):
                result = _exhaust(result, points)
        except Suspended as suspended:
            call = suspended.call
        finally:
            for point in points[told:]:
                passed(point)
            told = len(points)
        if call is None:
            return result
        yield
        try:
            answers.append(((yield from execute(call)), None))
        except SeamarkError as error:
            answers.append((None, error))


def _exhaust(steps: Generator[Point, None, Any], points: list[Point]) -> Any:
    while True:
        try:
            points.append(next(steps))
        except StopIteration as end:
            return end.value
