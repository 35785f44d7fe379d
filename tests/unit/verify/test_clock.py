"""A wrong clock is there with libfaketime alone; what it does is tried on real jobs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from seamark.model.errors import MissingDependencyError
from seamark.verify.clock import WrongClock


def test_without_libfaketime_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install libfaketime"):
        WrongClock(tmp_path / "clock")


def test_what_a_clock_is_wrong_by_stands_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libfaketime.so.1").touch()  # the loader passes over what is no library
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    clock = WrongClock(tmp_path / "clock")
    assert clock.environment["FAKETIME_TIMESTAMP_FILE"] == str(tmp_path / "clock")
    for seconds, text in ((90, "+90s"), (-6.4, "-6s")):
        clock.set(seconds)
        assert (tmp_path / "clock").read_text() == f"{text}\n"
