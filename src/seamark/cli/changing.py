"""`seamark checkpoint`, `stop` and `cancel`. `savepoints.py` has the verbs of savepoints."""

import sys
from shlex import quote
from typing import Any

import typer
from typer.core import TyperCommand

from seamark.cli import options
from seamark.cli.exits import NOT_DONE
from seamark.cli.options import flag, text
from seamark.cli.terminal import ms, say, suggest, time_of, waiting, writing
from seamark.cli.visible import echo, visible
from seamark.model.errors import OperationFailedError, UserError


@options.spread
def checkpoint(job: options.Job, as_json: options.Json = False, *, how: options.Running) -> None:
    """Let a job take a checkpoint now, and wait for it.

    Prints its id, its duration, and its path for `seamark run -s`.
    """
    from seamark.operations.change_job import take_checkpoint
    from seamark.operations.storage import storage_option

    running = how.find(job)
    say(f"Triggering a checkpoint of job {running.job}.")
    with waiting("Waiting for the checkpoint") as tick:
        done = take_checkpoint(running, how.timeout, lambda *_: tick(""))
    if as_json:
        options.echo_json(done)
        return
    path, option = str(done.get("external_path", "")), storage_option(running.job.storage)
    if "end_to_end_duration" not in done:
        echo(f"No row is new since checkpoint {done['id']}, which it began from. Path: {path}")
        return
    echo(f"Checkpoint {done['id']} completed in {ms(done['end_to_end_duration'])}. Path: {path}")
    suggest(
        f"seamark checkpoints {quote(running.job.name)} --id {done['id']}{option}",
        f"seamark run -s {quote(path)} APP.PY",
    )


@options.spread
def stop(
    job: options.Job,
    savepoint: str | None = text(
        "DIR", "End the job with a savepoint below this directory.", "-p", "--savepointPath"
    ),
    type_: options.SavepointType = options.SavepointFormat.CANONICAL,
    drain: bool = flag(
        "For good: read nothing more and close every window, then take the savepoint.",
        "-d",
        "--drain",
    ),
    no_savepoint: bool = flag("Without one, whatever the job's settings say.", "--no-savepoint"),
    *,
    how: options.Running,
) -> None:
    """End a job after its current epoch; every decided epoch is committed.

    Its checkpoints stay: the same program, run again, goes on from there. With -p, or a
    savepoint_dir in its settings, the job ends with a savepoint, and writes nothing after the
    savepoint's epoch. With --drain it always does, and the same program does not go on.
    """
    from seamark.operations.change_job import end_with_savepoint, has_savepoint_dir
    from seamark.operations.change_job import stop as stop_job

    if no_savepoint and (savepoint is not None or drain):
        raise typer.BadParameter("--no-savepoint stands alone: -p and --drain take a savepoint")
    running = how.find(job)
    name = running.job.name
    asked = savepoint is not None or drain
    if asked or (not no_savepoint and has_savepoint_dir(running.job)):
        what = "Draining" if drain else "Suspending"
        say(f"{what} job {running.job} with a {type_.value} savepoint.")
        try:
            with writing("Waiting for the savepoint") as show:
                path = end_with_savepoint(running, savepoint, how.timeout, show, type_, drain=drain)
        except (UserError, OperationFailedError) as error:
            if savepoint is not None:
                raise
            more = f"to end it without a savepoint: seamark stop --no-savepoint {quote(name)}"
            raise type(error)(f"{error}; {more}") from None
        echo(f"Savepoint completed. Path: {path}")
        suggest(f"seamark run -s {quote(path)} APP.PY")
        return
    say(f"Stopping job {running.job} after its current epoch.")
    with waiting("Waiting for the job to end") as tick:
        last = stop_job(running, how.timeout, lambda *_: tick(""))
    if last is None:
        echo(f"Job {name} is FINISHED; it never completed a checkpoint.")
    else:
        echo(
            f"Job {name} is FINISHED. Committed last: checkpoint {last.id}. "
            f"Path: {last.external_path}"
        )
    suggest(
        "seamark run APP.PY",
        *([f"seamark run -s {quote(last.external_path)} APP.PY"] if last else []),
    )


class Cancel(TyperCommand):
    """Lets the directory of -s be left out, as in Flink."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give -s no directory if none can follow."""
        given = []
        for arg, following in zip(args, [*args, "-"][1:], strict=True):
            given.append(arg)
            if arg in ("-s", "--withSavepoint") and following.startswith("-"):
                given.append("")
        return super().parse_args(ctx, given)


@options.spread
def cancel(
    job: str | None = options.SOME_JOB,
    savepoint: str | None = text(
        "[DIR]", "Take a savepoint first; stop -p is the better way.", "-s", "--withSavepoint"
    ),
    yes: bool = flag("Do not ask.", "--yes", "-y"),
    *,
    how: options.Running,
) -> None:
    """End a job at once; the epoch under way is aborted and runs again at the next start.

    Asks first on a terminal. With DELETE_ON_CANCELLATION the job's checkpoints are deleted. With -s
    a savepoint is taken before, below DIR or the job's savepoint_dir; no epoch comes in between.
    """
    from seamark.operations.change_job import cancel as cancel_job
    from seamark.operations.change_job import end_with_savepoint
    from seamark.operations.storage import storage_option

    if not job:  # `cancel -s JOB`: as Flink reads it
        job, savepoint = savepoint, ""
    if not job:
        raise typer.BadParameter("Missing argument 'JOB'.")
    running = how.find(job)
    name = running.job.name
    if not yes and sys.stdin.isatty():
        since = time_of(running.job.start.started_at)
        question = f"Cancel job {running.job}, running since {since}?"
        if not typer.confirm(visible(question), err=True):
            say("Not cancelled. To end it after its current epoch: seamark stop " + name)
            raise typer.Exit(NOT_DONE)
    if savepoint is not None:
        say(f"Cancelling job {running.job} with a savepoint.")
        with writing("Waiting for the savepoint") as show:
            path = end_with_savepoint(running, savepoint, how.timeout, show, cancels=True)
        echo(f"Job {name} is CANCELED. Savepoint completed. Path: {path}")
        suggest(f"seamark run -s {quote(path)} APP.PY")
        return
    say(f"Cancelling job {running.job}.")
    with waiting("Waiting for the job to end") as tick:
        kept = cancel_job(running, how.timeout, lambda *_: tick(""))
    echo(f"Job {name} is CANCELED." + ("" if kept else " Its checkpoints are deleted."))
    if kept:
        suggest(
            f"seamark info {quote(name)}{storage_option(running.job.storage)}",
            "seamark run APP.PY",
        )
