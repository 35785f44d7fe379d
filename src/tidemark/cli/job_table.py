"""The table of `tidemark list`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table

from tidemark.model.job_state import JobState
from tidemark.runtime.registry import RegisteredJob

_STYLE = {
    JobState.RUNNING: "green",
    JobState.RESTARTING: "yellow",
    JobState.UNREACHABLE: "red",
    JobState.FAILED: "red",
}


def show(jobs: Sequence[RegisteredJob]) -> None:
    """Print one line a job, and why each failed one did."""
    console = Console()
    if not jobs:
        console.print("no such job")
        return
    table = Table("started", "job id", "job", "state", "ended", box=None, pad_edge=False)
    for job in jobs:
        table.add_row(
            _time(job.started_at),
            job.job_id,
            job.name,
            f"[{_STYLE.get(job.state, 'default')}]{job.state.value}[/]",
            "" if job.ended_at is None else _time(job.ended_at),
        )
    console.print(table)
    for job in jobs:
        if job.reason:
            console.print(f"{job.name} failed: {job.reason}", markup=False)
        if job.state is JobState.UNREACHABLE:
            console.print(
                f"{job.name}: its driver does not answer ({job.rest_url or 'no address'}); "
                "start its program again, and it goes on after the last decided epoch",
                markup=False,
            )


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"
