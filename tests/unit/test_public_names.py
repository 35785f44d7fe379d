"""What ``import tidemark as tm`` gives: each name, and contracts that hold their subclasses."""

from __future__ import annotations

import pytest

import tidemark as tm


def test_every_public_name_is_there() -> None:
    assert set(tm.__all__) <= set(dir(tm))
    for name in tm.__all__:
        assert getattr(tm, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Sink'"):
        tm.Sink  # noqa: B018


@pytest.mark.parametrize("contract", [tm.TwoPhaseCommitSink, tm.CommittingWriter, tm.Committer])
def test_a_subclass_that_lacks_a_method_cannot_be_built(contract: type) -> None:
    with pytest.raises(TypeError, match="abstract method"):
        type("Forgetful", (contract,), {})()
