"""The one form of an attempt's name: a written name is read back, and nothing else is a name."""

from __future__ import annotations

import pytest

from seamark.contracts.attempt_name import AttemptName, owner_path, plain
from seamark.contracts.sink import WriterContext

CONTEXT = WriterContext("job", "a/b ü", 3, 17, 2, 10**11, 16)


@pytest.mark.parametrize("owner", ["", "job/sink", "seamark/j-1/s_2", owner_path(CONTEXT)])
def test_a_name_is_read_back(owner: str) -> None:
    name, again = AttemptName.of(CONTEXT, owner), AttemptName.of(CONTEXT, owner)
    assert name != again
    assert AttemptName.parse(str(name)) == name
    assert (name.generation, name.epoch, name.partition, name.attempt) == (3, 17, 2, 10**11)


def test_a_system_may_part_it_otherwise() -> None:
    name = AttemptName.of(CONTEXT, token="x9")
    assert name.encoded(":") == "g3:e17:p2:a100000000000:x9"
    found = AttemptName.parse(f"seamark:j:s:{name.encoded(':')}")
    assert found is not None
    assert (found.owner, found.token) == ("seamark:j:s", "x9")


@pytest.mark.parametrize(
    "text",
    [
        "", "g1-e2-p3-a4", "g1-e2-p3-a4-", "g1-e2:p3-a4-0", "g1-e2-p3-a4-0/x", "/g1-e2-p3-a4-0",
        "../g1-e2-p3-a4-0", "a/../g1-e2-p3-a4-0", "a//g1-e2-p3-a4-0", "g1-e2-p3-a4-0\n",
        "g-1-e2-p3-a4-0", "g1-e2-p3-a4-xyz", "somebody's own",
    ],
)  # fmt: skip
def test_other_texts_are_no_names(text: str) -> None:
    assert AttemptName.parse(text) is None


def test_what_cannot_stand_in_a_name_is_a_digest() -> None:
    assert plain("a.b-c_d") == "a.b-c_d"
    for text in ("", ".hidden", "a/b", "ü", "x" * 65, "a\n"):
        assert plain(text).startswith("sha256-")
        assert len(plain(text)) == 47
    assert len(plain("x" * 41, 40, 32)) == 39
