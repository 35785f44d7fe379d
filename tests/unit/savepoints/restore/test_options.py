"""The options of a restore, overridden by the environment of ``seamark run``."""

from __future__ import annotations

import pytest

from seamark.api.settings import PARALLELISM_VARIABLE
from seamark.model.errors import ConfigurationError
from seamark.savepoints.restore.options import RestoreOptions


@pytest.mark.parametrize("wrong", ["many", "0", "-1", "1.5"])
def test_a_wrong_parallelism_of_the_environment_names_the_value(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=f"parallelism is '?{wrong}'?; give a whole"):
        RestoreOptions("clicks").overridden({PARALLELISM_VARIABLE: wrong})


def test_the_environment_wins_over_the_program() -> None:
    options = RestoreOptions("clicks", parallelism=3)
    assert options.overridden({PARALLELISM_VARIABLE: "12"}).parallelism == 12
    assert options.overridden({PARALLELISM_VARIABLE: ""}).parallelism == 3
