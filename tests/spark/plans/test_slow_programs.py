"""The judge of `test_batch_oracle.py` for slow programs, whose epochs leave rows to the next ones.

How: each sink takes its time for a row, or a Python function before it does, and unaligned epochs
end at once. Drivers are killed with -9 at a failpoint, in a process of their own (`oracle_app.py`),
and a job goes on under another name, from the retained checkpoint. In the end every sink must hold
what a batch over the same input gives.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.spark.plans.test_batch_oracle import QUIET, Program, check, programs

KILLS = (
    "epoch-started", "channel-state-written", "channel-state-read:2", "pending-written:2",
    "pre-committed:2", "prepared", "decided:3", "file-renamed", "sink-committed", "committed:2",
)  # fmt: skip

slow_programs = st.builds(
    replace,
    programs,
    slow=st.sampled_from(("sink", "function")),
    kill=st.sampled_from(("", *KILLS)),
    moves=st.booleans(),
)

SLOW = Program(
    (
        ("windows", ("json",), False),
        ("raw", (), True),
        ("windows of distinct", ("filter",), False),
    ),
    slow="sink",
    moves=True,
)
"""Three sinks, whose rows wait from epoch to epoch; the second start is another job's."""


@pytest.mark.parametrize("slow", ["sink", pytest.param("function", marks=pytest.mark.chaos)])
def test_slow_sinks_hold_what_a_batch_gives(spark: SparkSession, slow: str) -> None:
    assert check(spark, replace(SLOW, slow=slow)) > 0


@pytest.mark.parametrize(
    ("slow", "kill"),
    [
        pytest.param("sink", "channel-state-written:2", marks=pytest.mark.chaos),
        ("function", "sink-committed"),
    ],
)
def test_slow_sinks_of_killed_drivers_hold_what_a_batch_gives(
    spark: SparkSession, slow: str, kill: str
) -> None:
    assert check(spark, replace(SLOW, slow=slow, kill=kill)) > 0


@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
@settings(max_examples=100, **QUIET)
@given(program=slow_programs)
def test_a_hundred_slow_programs(spark: SparkSession, program: Program) -> None:
    check(spark, program)
