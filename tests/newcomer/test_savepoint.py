"""What every Flink user types, `seamark stop -p` and `seamark run -s`, into another job."""

from __future__ import annotations

from tests.newcomer.conftest import Newcomer
from tests.newcomer.savepoint_day import savepoint_day


def test_restored_as_another_job(newcomer: Newcomer) -> None:
    savepoint_day(newcomer, "clicks-v2")
