"""Arguments and options shared by several verbs, with their shell completion."""

from __future__ import annotations

import logging
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from seamark.cli.visible import VisibleFormatter, visible
from seamark.model.durations import seconds


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


def _seconds(text: Any) -> float:
    return seconds(text, "--timeout")


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's name, its id, or the first four or more digits of its id.",
        autocompletion=_job_names,
        show_default=False,
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="Storage of the job's checkpoints; default: checkpoint.storage in seamark.toml.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, callback=_log_to_stderr, is_eager=True, metavar="",
        show_default=False, help="Log to stderr; -vv in detail.",
    ),
]  # fmt: skip
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Holds the job's token; default: SEAMARK_TOKEN, or the file of the job's driver.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(parser=_seconds, metavar="TIME", help="How long to wait, e.g. 30s or 10min."),
]


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
