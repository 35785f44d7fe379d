"""How: every verb of the command line is found in the Typer application itself, so a new one is
held to the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner, Result

from seamark.checkpoint.executions import ExecutionEnd, ExecutionStart, ExecutionStore
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.cli.main import app
from seamark.files.local import LocalDirectory
from seamark.model.job_state import JobState


def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
    for name, each in (below or {}).items():
        yield from verbs(each, (*words, name))


VERBS = dict(verbs(typer.main.get_command(app)))
NEEDED = {("txn", "accept-loss"): {"epoch", "sink", "reason"}}
"""Options that a verb cannot do without: no default could be right."""
OF_JOBS = {
    words
    for words, command in VERBS.items()
    if {"JOB", "PATH|JOB", "APP.PY|JOB"} & {getattr(p, "metavar", "") for p in command.params}
} | {("list",), ("dashboard",), ("doctor",), ("savepoint", "dispose")}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def options_of(command: Any) -> dict[str, Any]:
    return {p.name: p for p in command.params if p.param_type_name == "option"}


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_no_verb_needs_an_option_on_a_laptop(words: tuple[str, ...]) -> None:
    options = options_of(VERBS[words])
    assert {n for n, o in options.items() if o.required} == NEEDED.get(words, set())
    assert ("storage" in options) == (words in OF_JOBS), "a verb on jobs finds them by a storage"


def typed(words: tuple[str, ...]) -> list[str]:
    given = [p for p in VERBS[words].params if p.param_type_name == "argument"]
    return [*words, *("clicks" for p in given if p.required or "JOB" in p.metavar)]


@pytest.mark.parametrize("words", sorted(OF_JOBS), ids=" ".join)
def test_every_verb_on_jobs_looks_where_jobs_without_a_storage_are(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEAMARK_STORAGE", "http://host/x")
    more = []
    if words in (("offsets", "set"), ("offsets", "rewind")):  # they look at these first
        more = ["--to-earliest", "--bootstrap-servers", "127.0.0.1:1"]
    ended = call(*typed(words), *more)
    assert ended.exit_code == 2
    assert "SEAMARK_STORAGE has the scheme 'http'" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("way", ["SEAMARK_HOME", "SEAMARK_STORAGE", "seamark.toml"])
def test_a_job_of_the_usual_storage_is_found_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    storage = tmp_path / "home/checkpoints"
    if way != "SEAMARK_HOME":
        storage = tmp_path / "own"
    if way == "SEAMARK_STORAGE":
        monkeypatch.setenv(way, str(storage))
    elif way == "seamark.toml":
        Path(way).write_text('[checkpoint]\nstorage = "own"\n')
    files = LocalDirectory(storage / "clicks")
    CheckpointStore(files, files).create_identity(JobIdentity("ab" * 16, "e" * 32, "clicks", 8, 1))
    executions = ExecutionStore(files)
    number = executions.begin(ExecutionStart("ab" * 16, "clicks", "here", 1, 1000.0, ""))
    executions.end(number, ExecutionEnd(JobState.FINISHED, 1060.0))
    for words in (["list", "-a"], ["info", "clicks"], ["checkpoints", "clicks"]):
        ended = call(*words)
        assert ended.exit_code == 0, ended.output
        assert "--storage" not in ended.stderr, "what is suggested needs none, too"
    for words in (["stop"], ["cancel"], ["checkpoint"], ["savepoint"], ["cancel", "-s"]):
        assert "it is FINISHED" in call(*words, "clicks").stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["infos"], "Did you mean 'info'?"),
        (["offsets", "rewnd"], "Did you mean 'rewind'?"),
        (["list", "--storge", "x"], "--storage"),
        (["stop", "clicks", "--no-savepoint", "-p", "/s"], "--no-savepoint stands alone"),
        (["cancel", "-s"], "Missing argument 'JOB'"),
        (["list", "--watch", "--json"], "--watch is for people"),
        (["txn", "list"], "give one of APP.PY, --bootstrap-servers and --location"),
        (["txn", "list", "--bootstrap-servers", ""], "give one of APP.PY, --bootstrap-servers"),
        (["txn", "list", "--prefix", "x", "app.py"], "go with --bootstrap-servers"),
    ],
)
def test_a_word_that_is_none_and_options_that_exclude_each_other(
    arguments: list[str], says: str
) -> None:
    ended = call(*arguments)
    assert ended.exit_code == 2
    assert says in " ".join(ended.stderr.replace("│", " ").split())
