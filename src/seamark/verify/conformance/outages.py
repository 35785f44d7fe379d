"""The suite for outages: the sink's system is away, hangs, or answers by halves during each call.

A call without an answer raises, or returns RETRY, within `AWAY_ANSWER_S`. When the system is back,
the same call succeeds, and each row is there once.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering
from seamark.model.errors import PreflightError
from seamark.verify.conformance.steps import (
    DONE,
    SinkUnderTest,
    answered,
    attempt,
    committer,
    driver,
    lingering,
    three,
    until_proved,
    write,
)
from seamark.verify.proxy import CuttingProxy

AWAY_ANSWER_S = 60.0
"""The deadline for a call during an outage: nothing may hang an epoch."""
_Harm = Literal["resets", "drops", "halves"]
Outage = Callable[[], AbstractContextManager[object]]


@contextlib.contextmanager
def soon(what: str = "") -> Iterator[None]:
    """Assert that the calls return in time."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < AWAY_ANSWER_S, what


class OutageConformance:
    """For every sink. Needs `line`, `server` or `outages`, best all that fit the system."""

    def test_a_commit_in_an_outage_is_asked_again(self, under: SinkUnderTest) -> None:
        """RETRY for each of three transactions, by a committer with a line and by one without. Half
        an answer may be enough, if it is true."""
        expected: list[int] = []
        for epoch, (name, hit, outage) in enumerate(_outages(under)):
            numbers = range(30 * epoch, 30 * epoch + 30)
            sides = [committer(hit, driver()), hit.sink.create_committer(driver())]
            parts = three(hit, numbers, epoch=epoch)
            left = parts
            with outage():
                for side in sides:
                    with soon(name):
                        answers = answered(side.commit, parts, CommitOutcome.RETRY)
                    if name == "halves":
                        left = [p for p, o in zip(parts, answers, strict=True) if o not in DONE]
                        answers = [outcome for outcome in answers if outcome not in DONE]
                    assert set(answers) <= {CommitOutcome.RETRY}, name
                    assert answers or name == "halves", name
            expected += numbers
            for side in sides:
                assert set(until_proved(side.commit, left)) <= DONE, name
                assert sorted(under.visible()) == expected, name
                assert set(until_proved(side.commit, parts)) <= DONE, name
                side.close()

    def test_an_abort_in_an_outage_is_asked_again(self, under: SinkUnderTest) -> None:
        """RETRY, unless the system can do it; and in the end it holds."""
        for epoch, (name, hit, outage) in enumerate(_outages(under)):
            sides = [committer(hit, driver()), hit.sink.create_committer(driver())]
            parts = three(hit, epoch=epoch)
            with outage():
                for side in sides:
                    with soon(name):
                        answers = answered(side.abort, parts, AbortOutcome.RETRY)
                    assert set(answers) <= {AbortOutcome.RETRY, AbortOutcome.ABORTED}, name
            for side in sides:
                assert until_proved(side.abort, parts) == [AbortOutcome.ABORTED] * 3, name
                assert until_proved(side.commit, parts) == [under.gone] * 3, name
                side.close()
            assert under.visible() == [], name

    def test_a_start_and_a_listing_in_an_outage_say_so(self, under: SinkUnderTest) -> None:
        """They raise, a start PreflightError, unless the system can answer; no half list comes."""
        for epoch, (name, hit, outage) in enumerate(_outages(under)):
            sides = [committer(hit, driver()), hit.sink.create_committer(driver())]
            handles = sorted(part.handle for part in three(hit, epoch=epoch))
            answers: list[Any] = []
            with outage():
                for side in sides:
                    with soon(name), contextlib.suppress(Exception):
                        answers.append(_handles(side.list_lingering()))
                starting = hit.sink.create_committer(driver(2))
                with soon(name), contextlib.suppress(PreflightError):
                    starting.preflight()
                starting.close()
            assert all(listed == handles for listed in answers), name
            successor = committer(hit, driver(2))
            for side in (*sides, successor):
                assert _handles(lingering(side)) == handles, name
            left = [one.committable for one in lingering(successor)]
            assert until_proved(successor.abort, left) == [AbortOutcome.ABORTED] * 3, name
            for side in (*sides, successor):
                side.close()

    def test_an_attempt_in_an_outage_ends_soon(self, under: SinkUnderTest) -> None:
        """Before its first row, and among its rows; the next attempt writes them."""
        expected: list[int] = []
        for epoch, (name, hit, outage) in enumerate(_outages(under)):
            numbers = range(10 * epoch, 10 * epoch + 10)
            side = committer(hit, driver())
            writers = [hit.sink.create_writer(attempt(epoch=epoch, partition=p)) for p in range(2)]
            writers[1].write(under.batch(numbers[:5]))
            with outage():
                for writer in writers:
                    with soon(name):
                        with contextlib.suppress(Exception):
                            writer.write(under.batch(numbers[5:]))
                            writer.prepare_commit()
                        writer.abort()
            left = [one.committable for one in lingering(side)]
            assert set(until_proved(side.abort, left)) <= {AbortOutcome.ABORTED}, name
            _, parts = write(hit, attempt(epoch=epoch, attempt=1), numbers)
            assert until_proved(side.commit, parts) == [CommitOutcome.COMMITTED], name
            expected += numbers
            assert sorted(under.visible()) == expected, name
            side.close()


def _outages(under: SinkUnderTest) -> Iterator[tuple[str, SinkUnderTest, Outage]]:
    """Yield each outage: its name, the sink that it hits, and how to begin it."""
    assert under.line or under.server or under.outages, "give SinkUnderTest.line or .outages"
    for name, outage in under.outages.items():
        yield name, under, outage
    if under.server is not None:
        yield "killed", under, under.server.outage
    for how in get_args(_Harm) if under.line is not None else ():
        assert under.line is not None
        with CuttingProxy(under.line.host, under.line.port) as proxy:
            sink = under.line.through(proxy.port)
            yield how, replace(under, sink=sink), partial(proxy.outage, how)


def _handles(listed: Iterable[Lingering[Any]]) -> list[str]:
    return sorted(one.committable.handle for one in listed)
