"""`seamark stop -p` and `seamark run -s`, under the same name, killed on the way."""

from __future__ import annotations

from tests.newcomer.conftest import Newcomer
from tests.newcomer.savepoint_day import savepoint_day


def test_restored_under_the_same_name(newcomer: Newcomer) -> None:
    savepoint_day(newcomer, "clicks", kills=(1, 8))
