"""`seamark run -s PATH --plan`: the restore plan as tables, or as JSON."""

import json
from typing import Any

import typer
from rich.text import Text

from seamark.cli import options
from seamark.cli.exits import MISTAKE, NOT_DONE
from seamark.cli.terminal import print_table, say, size, stdout, time_of, waiting
from seamark.model.durations import moment_text

_STYLES = {"mapped": "green", "new": "yellow", "dropped": "red"}


def show_plan(program: Any, *, as_json: bool) -> None:
    """Print the effect of the restore. The exit code is 0 if it can be done; MISTAKE if the program
    ends with that code before its plan; otherwise NOT_DONE."""
    from seamark.operations.run_detached import ProgramEndedError, plan_of

    try:
        with waiting(f"Planning with {program.app}"):
            plan = plan_of(program)
    except ProgramEndedError as error:
        say(f"seamark: {error}")
        raise typer.Exit(MISTAKE if error.code == MISTAKE else NOT_DONE) from None
    if as_json:
        options.echo_json(plan)
    else:
        _print(plan)
    if not plan["restorable"]:
        raise typer.Exit(NOT_DONE)


def _print(plan: dict[str, Any]) -> None:
    before, after = plan["from"], plan["to"]
    out = stdout()
    out.print(Text(f"{_kind(plan)} {plan['path']}"), soft_wrap=True)
    if before["jid"] is not None:
        out.print(Text(f"  of job {before['name']} ({before['jid']}), epoch {before['epoch']}"
                       + _when(before)))  # fmt: skip
    out.print(Text(f"into job {after['name']}, {after['directory']}"), soft_wrap=True)
    if before["partitions"]:
        for name, key in (("state backend", "state-backend"), ("partitions", "partitions")):
            changed = "" if before[key] == after[key] else f" → {after[key]}"
            out.print(f"  {name:<14} {before[key]}{changed}")
        out.print(f"  claim mode     {plan['claim-mode']}")
    _print_parts(plan)
    for warning in plan["warnings"]:
        out.print(Text("warning: ", "yellow") + Text(warning, "default"), soft_wrap=True)
    for problem in plan["problems"]:
        out.print(Text("problem: ", "bold red") + Text(problem, "default"), soft_wrap=True)
    verdict = "It can be restored so." if plan["restorable"] else "It cannot be restored so."
    out.print(Text(verdict, "bold green" if plan["restorable"] else "bold red"))


def _kind(plan: dict[str, Any]) -> str:
    if plan["kind"] == "checkpoint":
        return "Retained checkpoint"
    return f"{plan['format'].capitalize()} savepoint" if plan["format"] else "Savepoint"


def _when(before: dict[str, Any]) -> str:
    text = ""
    if before["created"] is not None:
        text += f", taken {time_of(before['created'] / 1000)}"
    if before["watermark"]:
        text += f", watermark {moment_text(before['watermark'])}"
    return text


def _print_parts(plan: dict[str, Any]) -> None:
    if plan["operators"]:
        print_table(
            ("operator", "type", "what becomes of it", "rows", "bytes"),
            map(_operator, plan["operators"]),
        )
    if plan["sources"]:
        print_table(("source", "what becomes of it", "offset"), map(_source, plan["sources"]))
    if plan["sinks"]:
        columns = ("sink", "what becomes of it", "to commit", "left to the first job")
        print_table(columns, map(_sink, plan["sinks"]))


def _operator(operator: dict[str, Any]) -> tuple[str | Text, ...]:
    done = [word for word in ("repartitioned", "converted", "evolved") if operator[word]]
    note = {"new": "begins empty", "dropped": "its state is left out"}.get(operator["action"])
    return (
        _uid(operator),
        operator["type"],
        _action(operator["action"], note or ", ".join(done)),
        f"{operator['rows']:,}" if operator["rows"] is not None else "",
        size(operator["bytes"]) if operator["bytes"] is not None else "",
    )


def _source(source: dict[str, Any]) -> tuple[str | Text, ...]:
    note = {"new": "begins at its own starting offsets", "dropped": "is left out"}
    action = _action(source["action"], note.get(source["action"], "goes on"))
    return _uid(source), action, "" if source["offset"] is None else json.dumps(source["offset"])


def _sink(sink: dict[str, Any]) -> tuple[str | Text, ...]:
    action = _action(sink["action"], "") if sink["action"] else Text("written to")
    return sink["uid"], action, str(sink["commit"]), str(sink["abort"])


def _action(action: str, note: str) -> Text:
    text = Text(action, _STYLES[action])
    return text.append(f": {note}" if note else "", "default")


def _uid(part: dict[str, Any]) -> Text:
    return Text(part["uid"]) if part["named"] else Text(part["uid"]).append(" (no uid)", "yellow")
