"""A server out of reach: a skip on a developer's machine, a failure in CI."""

from __future__ import annotations

import pytest

from seamark.model.errors import MissingDependencyError
from tests.servers.needed import NotToBeHadError, needed


@pytest.mark.parametrize("error", [NotToBeHadError, MissingDependencyError])
@pytest.mark.parametrize(
    ("ci", "outcome"),
    [
        ("true", pytest.fail.Exception),
        ("", pytest.skip.Exception),
    ],
)
def test_what_cannot_be_had(
    ci: str,
    outcome: type[BaseException],
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="Redis: no redis-server"), needed("Redis"):
        raise error("no redis-server")


def test_a_server_that_fails_is_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(AssertionError, match="does not start"), needed("Redis"):
        raise AssertionError("does not start")
