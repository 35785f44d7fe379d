"""The causes of a writer's error, as they go into Spark's log."""

from __future__ import annotations

from seamark.run.pre_commit import _shown_cause


def hide(text: str) -> str:
    return text.replace("hush", "***")


def test_causes_in_a_circle_are_gone_through_once() -> None:
    first, second = OSError("gone"), OSError("away")
    first.__cause__, second.__cause__ = second, first
    assert _shown_cause(first, hide) is first
    first.__cause__ = first  # `raise error from error`
    assert _shown_cause(first, hide) is first
    first.__cause__, second.args = second, ("hush",)
    assert _shown_cause(first, hide) is None
