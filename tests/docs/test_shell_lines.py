"""Every `seamark …` on every page, in a block or in backticks, goes through the command line's own
parser: its verb and its options are there, and in a block each option has its value. So do those in
Seamark's own texts."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from seamark.cli.main import app

REPO = Path(__file__).parents[2]
PAGES = {*REPO.glob("*.md"), *REPO.glob("docs/**/*.md")} - {REPO / "CHANGELOG.md"}  # of the past
FENCE = re.compile(r"^ *```.*$", re.MULTILINE)
TYPED = re.compile(r"^ *(?:\$ )?(?:\w+=\S+ )*(?:python -m )?seamark +(.*)", re.MULTILINE)
ENDS = {"--help", "--install-completion", "…", "<verb>"}
QUOTED = re.compile(r"`(?:python -m )?seamark ([^`]+)`")
ROOT: Any = typer.main.get_command(app)


def fault(line: str, whole: bool) -> str | None:
    """Return what the parser has against the words behind `seamark`; None for nothing.

    whole: it is as typed; otherwise the value of its last option may be missing.
    """
    typed = re.split(r"\s[&|>;]", re.sub(r"\[(.*?)\]", r"\1", line))[0]  # [-n]: may be left out
    words = [*shlex.split(typed, comments=True), *([] if whole else ["VALUE"])]
    command, context = ROOT, None
    while words not in ([], ["VALUE"]) and words[0] not in ENDS:
        context = command.make_context("seamark", [], parent=context, resilient_parsing=True)
        context.resilient_parsing = False
        try:
            if not hasattr(command, "commands"):
                command.make_parser(context).parse_args(words)
                break
            command.parse_args(context, words)  # that of `savepoint` puts a verb in
        except Exception as error:  # of typer's click, whichever it is
            return f"{line}: {getattr(error, 'message', repr(error))}"
        verb, *words = [*context._protected_args, *context.args]
        if verb not in command.commands:
            return f"{line}: no verb {verb}"
        command = command.commands[verb]
    return None


def commands_of(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the words behind each `seamark`, and whether they are in a block."""
    for place, part in enumerate(FENCE.split(text)):
        if place % 2:
            for found in TYPED.finditer(re.sub(r"\\\n *", "", part)):
                yield found[1], True
        else:
            for found in QUOTED.finditer(re.sub(r"\s+", " ", part)):
                yield found[1], False


def test_each_command_of_the_pages_is_one() -> None:
    found = [each for page in sorted(PAGES) for each in commands_of(page.read_text())]
    assert sum(whole for _, whole in found) > 30
    assert len(found) > 100
    assert [said for each in found if (said := fault(*each))] == []


def test_each_option_in_the_table_of_verbs_is_there() -> None:
    page = (REPO / "docs/operations/cli.md").read_text()
    flags = []
    for cell in re.findall(r"^\| (`.*?) \| ", page.replace(r"\|", " "), re.MULTILINE):
        for span in re.findall("`([^`]+)`", cell):
            verbs, *words = re.split(r"[ []+(?=-)", span.replace("]", " "))
            verb = re.sub(r"[^a-z -].*", "", verbs)
            flags += [f"{verb} {word.split()[0]} VALUE" for word in words]
    assert len(flags) > 40
    assert [said for flag in flags if (said := fault(flag, True))] == []


def test_each_command_that_seamark_names_is_one() -> None:
    """In its errors and its help; `{…}` is what a text takes in."""
    texts = []
    for file in (REPO / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "X" for v in node.values)
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    found = {command for text in texts for command, _ in commands_of(text.replace("``", "`"))}
    assert len(found) > 30
    assert [said for command in sorted(found) if (said := fault(command, False))] == []


@pytest.mark.parametrize(
    "line",
    ["lst", "txn lst", "stop --savepoint clicks", "dev kafka --prot 9092", "run -s", "offsets -x"],
)
def test_a_wrong_command_would_be_found(line: str) -> None:
    (found,) = commands_of(f"```\n$ seamark {line} # as typed\n```\n")
    assert fault(*found) is not None


def test_what_a_page_may_leave_out_is_no_fault() -> None:
    text = "`seamark run -s`, `seamark txn`, `seamark checkpoints JOB [--id N]`, `seamark --help`"
    assert [fault(*each) for each in commands_of(text)] == [None] * 4
