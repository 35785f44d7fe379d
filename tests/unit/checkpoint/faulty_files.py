"""A checkpoint storage that fails at one chosen call: a twin of any `Directory`.

`Plan` names the call by its text and its number ("create lease/2.json", the first) and the way in
which it fails. One plan may be shared by several `FaultyFiles`, as a job's directory and Spark's.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from seamark.files.local import LocalDirectory

Call = tuple[str, int]
"""A call's text, and its number among those with the same text, from 0."""


class Way(Enum):
    """How a call fails."""

    REFUSED = "an error; nothing has happened"
    LOST = "it has happened; its answer is an error"
    REPEATED = "its answer is lost, and the client repeats it: a create is refused by its own file"
    LATE = "an error; it happens before the next driver starts"
    LAST = "an error; it happens when the next driver is at work"
    HANGS = "no answer; it happens when it is released"


@dataclass
class Plan:
    """`call` fails in this `way`; None lets all calls pass, unless `luck` lets one in fifty fail in
    some way. `calls` are those made so far."""

    call: Call | None = None
    way: Way = Way.REFUSED
    luck: random.Random | None = None
    calls: Counter[str] = field(default_factory=Counter)
    left: list[Callable[[], Any]] = field(default_factory=list)
    """Effects still to come, for `land`."""
    released: threading.Event = field(default_factory=threading.Event)
    """Ends the call that hangs."""
    met: bool = False
    """Whether a call has failed."""
    _lock: Any = field(default_factory=threading.Lock)

    def take(self, text: str) -> Way | None:
        """Count a call; return how it is to fail, if it is."""
        with self._lock:
            number = self.calls[text]
            self.calls[text] += 1
            way = self.way if self.call == (text, number) else None
            if self.luck is not None and self.luck.random() < 0.02:
                way = self.luck.choice([way for way in Way if way is not Way.HANGS])
            self.met |= way is not None
            return way

    def land(self) -> None:
        """Let late effects happen; their caller is gone."""
        self.released.set()
        for effect in self.left:
            with contextlib.suppress(OSError):
                effect()
        self.left.clear()


class FaultyFiles:
    """Has every method of `files`; `where` comes before the paths in the calls' texts."""

    def __init__(self, files: LocalDirectory, plan: Plan, where: str = "") -> None:
        self._files = files
        self._plan = plan
        self._where = where
        self.uri = files.uri

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._files, name)

        def call(*arguments: Any) -> Any:
            path = re.sub(r"[0-9a-f]{32}", "*", str(arguments[0])) if arguments else ""
            text = f"{name} {self._where}{path}"
            way = self._plan.take(text)
            effect = partial(method, *arguments)
            return effect() if way is None else self._fail(way, text, effect)

        return call

    def _fail(self, way: Way, text: str, effect: Callable[[], Any]) -> Any:
        match way:
            case Way.LOST:
                effect()
            case Way.REPEATED:
                effect()
                return effect()
            case Way.LATE | Way.LAST:
                self._plan.left.append(effect)
            case Way.HANGS:
                self._plan.released.wait()
                return effect()
        raise OSError(5, f"{text}: {way.value}")
