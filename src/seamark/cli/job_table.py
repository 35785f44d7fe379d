"""The table of `seamark list`."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from rich.table import Table
from rich.text import Text

from seamark.cli.terminal import say, stdout, suggest, time_of
from seamark.model.job_state import JobState
from seamark.operations.running_job import why_unreachable
from seamark.runtime.registry import RegisteredJob

STYLES = {
    JobState.RUNNING: "green",
    JobState.RESTARTING: "yellow",
    JobState.UNREACHABLE: "red",
    JobState.FAILED: "red",
}
SHORT_ID = 8
_WIDE = 110
"""Columns in which whole ids fit; commands take the first digits of an id too."""


def show(jobs: Sequence[RegisteredJob], storage: str, option: str, *, all_: bool) -> None:
    """Print one line a job, and why each failed one did. `option` is what a command needs to find
    jobs of that storage."""
    if not jobs:
        say(f"No job in {storage} has ever run." if all_ else f"No job runs in {storage}.")
        if not all_:
            suggest(f"seamark list --all{option}")
        return
    console = stdout()
    table = Table("started", "job id", "job", "state", box=None, pad_edge=False)
    ended = any(job.ended_at is not None for job in jobs)
    if ended:
        table.add_column("ended")
    for job in jobs:
        row = [
            Text(time_of(job.started_at)),
            Text(job.job_id if console.width >= _WIDE else job.job_id[:SHORT_ID]),
            Text(job.name),
            Text(job.state.value, STYLES.get(job.state, "")),
        ]
        if ended:
            row.append(Text("" if job.ended_at is None else time_of(job.ended_at)))
        table.add_row(*row)
    console.print(table)
    for job in jobs:
        if job.reason:
            say(f"{job.name} failed: {job.reason}")
        if job.state is JobState.UNREACHABLE:
            say(f"{job.name}: {why_unreachable(job)}")
    suggest(f"seamark info {quote(jobs[0].name)}{option}")
