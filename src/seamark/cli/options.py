"""Arguments and options shared by several verbs, with their shell completion."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from seamark.cli.terminal import say
from seamark.cli.visible import VisibleFormatter, echo, visible
from seamark.model.durations import seconds
from seamark.model.errors import ConfigurationError

if TYPE_CHECKING:
    from seamark.operations.driver_client import DriverClient


def _job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    from seamark.operations.storage import job_names

    names = job_names(ctx.params.get("storage"))
    return [name for name in names if name.startswith(incomplete) and visible(name) == name]


def _log_to_stderr(count: int) -> int:
    if count:
        level = logging.INFO if count == 1 else logging.DEBUG
        handler = logging.StreamHandler()
        handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(handlers=[handler])
        logging.getLogger("seamark").setLevel(level)
    return count


def _note_late_options(ctx: typer.Context, arguments: list[str] | None) -> list[str] | None:
    own = {name for parameter in ctx.command.params for name in parameter.opts}
    for word in arguments or ():
        if word.startswith("-") and word.partition("=")[0] in own - {"-h", "--help"}:
            say(f"{word} stands after the program, so the program gets it, and seamark does not")
    return arguments


def _seconds(text: Any) -> float:
    try:
        return float(text) if str(text).isdecimal() else seconds(text, "--timeout")
    except ConfigurationError as error:  # of which click before 8.5 shows the value alone
        raise typer.BadParameter(str(error)) from None


# Both are defaults of parameters: a line an option. An option shared by commands is Annotated.
def flag(help_: str, *names: str) -> Any:
    """Return an option without a value, off unless it is given."""
    return typer.Option(False, *names, help=help_)


def text(
    metavar: str, help_: str, *names: str, default: Any = None, shown: str | bool = False,
    **more: Any,
) -> Any:  # fmt: skip
    """Return an option with a value; `shown` is its default for the help, or whether to show it."""
    return typer.Option(default, *names, metavar=metavar, show_default=shown, help=help_, **more)


Location = text(
    "DIR", 'The location of a query of format("seamark"), instead of a program.', "--location"
)
JobOfProgram = text(
    "NAME", "The job that is meant, of a program that runs several jobs or queries.", "--job"
)
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARGS]",
        show_default=False,
        help="The program's own arguments.",
        callback=_note_late_options,
    ),
]
OptionsFile = text(
    "FILE", "With --location: the query's options with secrets, name=value.", "--options"
)


def echo_json(value: Any) -> None:
    """Print a result for programs."""
    echo(json.dumps(value, indent=2))


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see the fields of the command's last parameter, a dataclass, as further options."""
    *own, last = signature(command, eval_str=True).parameters.values()
    types = get_type_hints(last.annotation, include_extras=True)  # also of those inherited
    fields = signature(last.annotation).parameters.values()
    shared = [each.replace(annotation=types[each.name]) for each in fields]

    @wraps(command)
    def run(**given: Any) -> None:
        together = last.annotation(**{each.name: given.pop(each.name) for each in shared})
        command(**given, **{last.name: together})

    parameters = sorted([*own, *shared], key=lambda each: each.default is not Parameter.empty)
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


_JOB: dict[str, Any] = {
    "metavar": "JOB",
    "help": "The job's name, its id, or the first four or more digits of its id.",
    "autocompletion": _job_names,
    "show_default": False,
}
Job = Annotated[str, typer.Argument(**_JOB)]
SOME_JOB: Any = typer.Argument(None, **_JOB)
"""For a verb that finds out by itself that it is missing."""
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URI", show_default=False,
        help="Of the checkpoints; default: seamark.toml's, SEAMARK_STORAGE, else in ~/.seamark.",
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", metavar="", show_default=False, help="Log to stderr; -vv in detail.",
        count=True, callback=_log_to_stderr, is_eager=True,
    ),
]  # fmt: skip


class SavepointFormat(str, Enum):
    """The values of --type, as Flink's. (An enum of its own: the package of the other one takes its
    time to import.)"""

    CANONICAL = "canonical"
    NATIVE = "native"


SavepointType = Annotated[
    SavepointFormat,
    typer.Option(
        "--type",
        case_sensitive=False,
        help="canonical: for any state backend and parallelism; native: its own files, quicker.",
    ),
]


@dataclass(frozen=True)
class Running:
    """The options of every verb on a running job."""

    storage: Storage = None
    token_file: Path | None = text(
        "FILE", "Holds the job's token; default: SEAMARK_TOKEN, or the file of the job's driver."
    )
    timeout: float = typer.Option(
        "10min", parser=_seconds, metavar="TIME", help="How long to wait, e.g. 30s or 10min."
    )
    verbose: Verbose = 0

    def find(self, job: str) -> "DriverClient":
        """Return the driver of a job to be changed; raises as `find_running`."""
        from seamark.cli.terminal import reading
        from seamark.operations.driver_client import find_running

        with reading(self.storage) as uri:
            return find_running(job, uri, self.token_file)
