"""How: lines of Seamark's loggers and of another one's, while a job runs and afterwards."""

from __future__ import annotations

import logging

import pytest

from seamark.jobs.log_redaction import RedactedLog
from seamark.model.redaction import Redactor

SECRET = "s3cr3t-of-the-job"


def test_no_line_of_seamarks_has_a_secret_while_the_job_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, others = logging.getLogger("seamark.sinks.orders"), logging.getLogger("seamarks.app")

    def lines() -> list[str]:
        caplog.clear()
        for log in (ours, others):
            log.warning("no connection as %s: %s", "me", ValueError(f"{SECRET} is wrong"))
        return [record.getMessage() for record in caplog.records]

    raw = f"no connection as me: {SECRET} is wrong"
    with RedactedLog(Redactor([SECRET])), RedactedLog(Redactor(["another-secret"])):
        assert lines() == ["no connection as me: *** is wrong", raw]
        ours.warning("sink %s is away", "orders")
        assert caplog.records[-1].args == ("orders",), "a line without a secret lost its form"
    assert lines() == [raw, raw]


def test_no_trace_of_seamarks_has_a_secret_while_the_job_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RedactedLog(Redactor([SECRET])):
        try:
            raise ValueError(f"no login with {SECRET}")
        except ValueError:
            logging.getLogger("seamark.sinks.orders").exception("the sink is away")
    assert "ValueError: no login with ***" in caplog.text
    assert SECRET not in caplog.text
