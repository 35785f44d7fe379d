"""The content of ``import seamark as sm``: each name, and contracts true of their subclasses."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seamark as sm
from seamark.model import errors

REPO = Path(__file__).parents[2]


def docstrings(public: Any) -> Iterator[str]:
    """Yield the docstring of a public name and those of its public methods and properties."""
    members = vars(public).items() if inspect.isclass(public) else ()
    for one in (public, *(member for name, member in members if not name.startswith("_"))):
        yield inspect.getdoc(getattr(one, "__func__", one)) or ""


def errors_in(text: str) -> set[str]:
    return {name for name in re.findall(r"\b[A-Z]\w*Error\b", text) if not hasattr(builtins, name)}


def test_every_public_name_is_there() -> None:
    assert set(sm.__all__) <= set(dir(sm))
    for name in sm.__all__:
        assert getattr(sm, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Sink'"):
        sm.Sink  # noqa: B018


def test_every_error_that_a_public_docstring_names_is_public() -> None:
    documented = {
        (name, error)
        for name in sm.__all__
        for text in docstrings(getattr(sm, name))
        for error in errors_in(text)
    }
    assert ("Job", "FencedError") in documented  # methods' docstrings are among them
    assert {(name, error) for name, error in documented if error not in sm.__all__} == set()


def test_every_error_that_the_docs_name_is_public_and_so_is_the_whole_tree() -> None:
    pages = [REPO / "README.md", *REPO.glob("docs/**/*.md")]
    named = set().union(*(errors_in(page.read_text()) for page in pages))
    assert "LostTransactionError" in named
    assert named - set(sm.__all__) == set()
    ours = {name for name, of in vars(errors).items() if inspect.isclass(of) and "Error" in name}
    assert ours - set(sm.__all__) == set()


@pytest.mark.parametrize("contract", [sm.TwoPhaseCommitSink, sm.CommittingWriter, sm.Committer])
def test_a_subclass_that_lacks_a_method_cannot_be_built(contract: type) -> None:
    with pytest.raises(TypeError, match="abstract method"):
        type("Forgetful", (contract,), {})()
