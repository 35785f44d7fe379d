"""A program with one stateful job, to be killed: argument 1 is the folder for everything."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import seamark as sm
from tests.every_change import SQLiteChanges


def add_clicks(folder: Path, first: int, rows: int = 30) -> None:
    """One more input file: one more epoch: `rows` clicks on three pages."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": i, "page": f"p{i % 3}"}) for i in range(first, first + rows)]
    hidden = folder / "in" / f".{first}.json"
    hidden.write_text("\n".join(lines))
    hidden.rename(folder / "in" / f"{first}.json")


def counting_job(folder: Path, name: str, database: str | None = None, **settings: Any) -> sm.Job:
    """Count clicks by page; each epoch writes the counts of the pages it has seen."""
    settings = {"storage": str(folder / "store"), "interval": "100ms"} | settings
    checkpoint = sm.CheckpointConfig(**settings)
    job = sm.Job(name, checkpoint, output_mode="update")
    source = sm.FileSource(
        str(folder / "in"),
        format="json",
        schema="id BIGINT, page STRING",
        ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )
    counts = job.source(source, "in").groupBy("page").count()
    job.sink(counts, SQLiteChanges(str(folder / f"{database or name}.db"), table="counts"), "out")
    return job


def counts(folder: Path, name: str) -> list[int]:
    """Return the counts of page p0 in their order of writing."""
    with sqlite3.connect(folder / f"{name}.db") as connection:
        rows = connection.execute("SELECT page, count FROM counts ORDER BY rowid").fetchall()
    by_page = {page: [c for p, c in rows if p == page] for page in ("p0", "p1", "p2")}
    assert by_page["p0"] == by_page["p1"] == by_page["p2"], by_page
    return by_page["p0"]


if __name__ == "__main__":
    home, job_name, *path = sys.argv[1:]
    counting_job(Path(home), job_name, "shared").run(*path)
