"""Every Python block of every page: all are type-checked against Seamark, and those run that only
build declarations.

A block that imports Seamark begins a program; the blocks after it on its page go on with it. Blocks
without one may use the names of `NAMES`, as if the page's reader had them, and those of the blocks
before them.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import seamark as sm

REPO = Path(__file__).parents[2]
PAGES = [REPO / "README.md", *sorted(REPO.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = """
import os
from collections.abc import Callable
from typing import Any
import psycopg
import pyarrow as pa
import seamark as sm
from pyspark.sql import DataFrame, SparkSession, functions as F
spark: SparkSession
job: sm.Job
checkpoint: sm.CheckpointConfig
rows: DataFrame
clicks: DataFrame
counts: DataFrame
orders: DataFrame
history: DataFrame
url: str
"""
# A page's functions need no annotations, and one name may have several values.
PAGES_SETTINGS = """
[[tool.mypy.overrides]]
module = "page.*"
allow_redefinition = true
check_untyped_defs = true
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
disallow_any_generics = false
disable_error_code = ["no-redef", "import-untyped"]

[[tool.mypy.overrides]]
module = [
    "hold_sink", "opensearch_sink", "nats_sink", "clickhouse_sink",
    "airflow.*", "pythonjsonlogger.*",
]
ignore_missing_imports = true
"""
GIVEN = {"sm", "os"}
"""What a block that only builds declarations asks for."""


def names_asked_of(code: str) -> set[str]:
    """Return the names that a block takes from elsewhere."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - bound - {*dir(builtins)}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    code: str

    @property
    def begins_a_program(self) -> bool:
        return "import seamark" in self.code


def blocks_of(page: str, text: str) -> list[Block]:
    found = [(text.count("\n", 0, m.start(1)) + 1, m[1]) for m in BLOCK.finditer(text)]
    assert len(found) == text.count("```python"), f"{page}: a block that is indented or has no end"
    return [Block(page, line, code) for line, code in found]


BLOCKS = [
    block for page in PAGES for block in blocks_of(str(page.relative_to(REPO)), page.read_text())
]
DECLARATIONS = [
    block
    for block in BLOCKS
    if not block.begins_a_program
    and names_asked_of(block.code) <= GIVEN
    and "sm.Savepoint" not in block.code  # of a file
]


def mistakes(blocks: list[Block], directory: Path) -> list[str]:
    """Return mypy's errors, each with its page's line."""
    places: dict[tuple[str, int], str] = {}
    (directory / "page").mkdir()
    (directory / "page/__init__.py").touch()
    program, text, page = "", "", ""
    for number, block in enumerate(blocks):
        if block.begins_a_program or block.page != page:
            program, page = f"page/b{number}.py", block.page
            text = "" if block.begins_a_program else NAMES
        for offset in range(block.code.count("\n")):
            line = text.count("\n") + 1 + offset
            places[program, line] = f"{page}:{block.line + offset}"
        text += block.code
        (directory / program).write_text(text)
    settings = (REPO / "pyproject.toml").read_text().replace('"pyspark.*", ', "")
    (directory / "mypy.toml").write_text(settings + PAGES_SETTINGS)
    cache = REPO / ".mypy_cache/pages"
    mypy = [sys.executable, "-m", "mypy", "--config-file=mypy.toml", f"--cache-dir={cache}"]
    environment = {**os.environ, "MYPYPATH": str(REPO / "src")}
    done = subprocess.run(
        [*mypy, "page"],
        cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    errors = re.findall(r"^(page/\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert errors or done.returncode == 0, done.stdout
    return [f"{places.get((file, int(n)), file)}: {error}" for file, n, error in errors]


def test_every_block_fits_what_is_there(tmp_path: Path) -> None:
    assert len(BLOCKS) > 75
    assert mistakes(BLOCKS, tmp_path) == []


def test_a_wrong_attribute_argument_or_program_would_be_found(tmp_path: Path) -> None:
    wrong = {
        'job.kafka_sink(rows, uid="out")': '"Job" has no attribute "kafka_sink"',
        'sm.KafkaSink("a:1", topics="out")': 'Unexpected keyword argument "topics"',
        'rows.withWatermarks("at", "1 s")': '"Column" not callable',
        "import seamark as sm; job.run()": 'Name "job" is not defined',
    }
    blocks = [Block(f"{number}.md", 7, f"first = 1\n{code}\n") for number, code in enumerate(wrong)]
    found = mistakes(blocks, tmp_path)
    assert len(found) == len(wrong)
    for number, error in enumerate(wrong.values()):
        assert any(each.startswith(f"{number}.md:8: {error}") for each in found), found


def test_an_ellipsis_of_prose_would_be_found(tmp_path: Path) -> None:
    block = blocks_of("a.md", "Text\n\n```python\nsm.KafkaSink(…)\n```\n")
    (found,) = mistakes(block, tmp_path)
    assert found.startswith("a.md:4: Got unexpected token")
    assert [block.page for block in BLOCKS if "…" in re.sub("#.*", "", block.code)] == []


@pytest.mark.parametrize("block", DECLARATIONS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_of_declarations_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("KAFKA_PASSWORD", "OIDC_SECRET"):
        monkeypatch.setenv(name, "secret")
    try:
        exec(block.code, {"sm": sm, "os": os})
    except sm.ConfigurationError as error:
        assert block.page == "docs/findings.md", error  # an example of what is refused
