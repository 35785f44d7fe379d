"""What a task says of the sink that has ended it."""

from __future__ import annotations

from typing import Any

import seamark as sm
from seamark.files import HadoopSettings
from seamark.model.errors import WriteRefusedError
from seamark.run.layout import Layout
from seamark.run.task_attempt import EpochTasks, TaskAttempt


def test_a_refused_row_says_how_it_is_set_aside_in_a_job_and_in_a_query() -> None:
    sink = sm.KafkaSink("one:9092", topic="out", transactional_id_prefix="etl")
    constant: Any = ("job", 1, HadoopSettings({}), {}, "", {})
    job = EpochTasks(Layout(("out",), ("key", "value")), {"out": sink}, {}, *constant)
    context: Any = None
    attempt = TaskAttempt(job, context)
    attempt.busy = "out"
    assert attempt.failure(WriteRefusedError("too large")) == (
        "sink 'out': WriteRefusedError: too large; to set single bad rows aside, give job.sink or "
        'sm.write_stream on_bad_row="dead_letter"'
    )
