"""Prints all jobs for `seamark list`, and one for `seamark info`."""

import time
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from rich.text import Text

from seamark.cli.terminal import ago, ms, print_table, say, size, stdout, suggest, time_of
from seamark.jobs.registry import RegisteredJob
from seamark.model.job_state import JobState
from seamark.operations.driver_client import why_unreachable
from seamark.operations.locations import LocationReport
from seamark.operations.reading import JobInfo

STYLES = {
    JobState.RUNNING: "green",
    JobState.RESTARTING: "yellow",
    JobState.UNREACHABLE: "red",
    JobState.UNOBSERVED: "cyan",
    JobState.FAILED: "red",
}
SHORT_ID = 8
_WIDE = 110
"""Columns in which whole ids fit; commands take the first digits of an id too."""


def show_all(jobs: Sequence[RegisteredJob], storage: str, option: str, *, all_: bool) -> None:
    """Print a line for each job, and each failure's reason. `option` is for suggested commands."""
    if not jobs:
        say(f"No job in {storage} has ever run." if all_ else f"No job runs in {storage}.")
        if not all_:
            suggest(f"seamark list --all{option}")
        return
    digits = None if stdout().width >= _WIDE else SHORT_ID
    ended = any(job.execution.end is not None for job in jobs)

    def row(job: RegisteredJob) -> list[Text]:
        end = job.execution.end
        return [
            Text(time_of(job.start.started_at)),
            Text(job.start.job_id[:digits]),
            Text(job.name),
            Text(job.state.value, STYLES.get(job.state, "")),
            *([Text("" if end is None else time_of(end.ended_at))] if ended else []),
        ]

    columns = ("started", "job id", "job", "state", *(["ended"] if ended else []))
    print_table(columns, map(row, jobs), box=None, pad_edge=False)
    for job in jobs:
        if job.reason:
            say(f"{job.name} failed: {job.reason}")
        if job.state is JobState.UNREACHABLE:
            say(f"{job.name}: {why_unreachable(job)}")
    suggest(f"seamark info {quote(jobs[0].name)}{option}")


def show(info: JobInfo, option: str) -> None:
    """Print all known facts about a job. With `option` suggested commands find its storage."""
    console, job = stdout(), info.job
    console.print(
        Text.assemble((job.name, "bold"), "  ", (job.state.value, STYLES.get(job.state, "")))
    )
    for name, value in _lines(info):
        console.print(Text(f"{name:<16}") + Text(value), soft_wrap=True)
    if info.parts:
        columns = ("uid", "kind", "guarantee", "description")
        rows = ([part[name] or "unknown" for name in columns] for part in info.parts)
        console.print()
        print_table((*columns[:3], "what"), rows, box=None, pad_edge=False)
    if job.state in (JobState.UNREACHABLE, JobState.UNOBSERVED):
        console.print(Text(f"\n{why_unreachable(job)}"), soft_wrap=True)
    suggest(*_next(info, option))


def _lines(info: JobInfo) -> list[tuple[str, str]]:
    job, now = info.job, time.time()
    start, end = job.start, job.execution.end
    started = time_of(start.started_at)
    lines = [("job id", start.job_id)]
    if end is None:
        lines.append(("started", f"{started}, {ago(now - start.started_at)} ago"))
    else:
        took = ago(end.ended_at - start.started_at)
        lines += [("started", started), ("ended", f"{time_of(end.ended_at)}, after {took}")]
    if job.reason:
        lines.append(("reason", job.reason))
    lines += [
        ("driver", f"pid {start.pid} on {start.host}, {start.rest_url or 'no address'}"),
        *([("log", start.log)] if start.log else []),
        ("restarts", f"{info.restarts} since the driver started"),
        ("directory", job.uri),
        ("generation", str(info.generation or "unknown")),
    ]
    if info.identity is not None:
        lines.append(("lineage", info.identity.lineage_id))
        if restored := info.identity.restored_from:
            what = f"epoch {restored.get('epoch')} of {restored.get('path')}"
            lines.append(("restored from", what))
    if info.guarantees is not None:
        weakest = info.guarantees["weakest"]
        because = f", because of {weakest}: seamark explain {job.name}" if weakest else ""
        lines.append(("guarantee", f"{info.guarantees['guarantee']}{because}"))
    lines += [("loss accepted", str(loss)) for loss in info.losses]
    if info.location is not None:
        return lines + location_lines(info.location)
    if info.epoch is not None:
        lines.append(("current epoch", _epoch(info.epoch, now)))
    if (last := info.last_completed) is not None:
        at = last.trigger_timestamp / 1e3
        lines += [
            (
                "last checkpoint",
                f"{last.id}, {time_of(at)} ({ago(now - at)} ago), "
                f"{ms(last.end_to_end_duration)}, {size(last.checkpointed_size)}",
            ),
            ("its path", last.external_path),
        ]
    else:
        lines.append(("last checkpoint", "none is completed"))
    return lines


def location_lines(report: LocationReport) -> list[tuple[str, str]]:
    """Return what the log of a query of ``format("seamark")`` says."""
    lines = []
    if (last := report.decided) is None:
        lines.append(("decided", "no batch yet"))
    else:
        state = "committed" if last.committed else "its commit is not proved yet"
        said = f"batch {last.batch} at {time_of(last.at)}: {last.rows} rows in "
        said += f"{last.transactions} transactions, by Spark's query {last.query}; {state}"
        lines.append(("decided", said))
        if last.rows_in_all is not None:
            lines.append(("rows", f"{last.rows_in_all} since batch {last.since}"))
    for number, at in report.open_tries.items():
        said = f"try {number}, begun at {time_of(at)}: the next one aborts what it has left open"
        lines.append(("open", said))
    lines.append(("log", f"{len(report.entries)} entries"))
    return lines


def _epoch(epoch: Mapping[str, Any], now: float) -> str:
    if epoch["id"] < 0:
        shown = "none under way"
    else:
        shown = f"{epoch['id']}: {epoch['phase']} for {ms(now * 1e3 - epoch['phase-since'])}"
    if waiting := epoch.get("uncommitted"):
        shown += "; stored and not yet committed: " + ", ".join(str(one["id"]) for one in waiting)
    return shown


def _next(info: JobInfo, option: str) -> list[str]:
    name, last = quote(info.job.name), info.last_completed
    if info.location is not None:
        return [f"seamark checkpoints {name}{option}", f"seamark explain {name}{option}"]
    if info.job.state is JobState.UNREACHABLE or info.job.state.is_terminal:
        restore = [f"seamark run -s {quote(last.external_path)} APP.PY"] if last is not None else []
        return [f"seamark checkpoints {name}{option}", "seamark run APP.PY", *restore]
    return [
        f"seamark checkpoints {name}{option}",
        f"seamark checkpoint {name}{option}",
        f"seamark stop {name}{option}",
    ]
