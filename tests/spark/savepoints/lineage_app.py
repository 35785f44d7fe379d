"""A program to be killed in a restore under its own name: argument 1 has its options, as JSON.

It adds input up to the file `until`, one an epoch, and ends with a savepoint once all is committed;
its path is in the file `path`. `changed`: another order of the plan, and another operator's type of
sink beside it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import threading
import time
from pathlib import Path

import seamark as sm
from seamark.model.errors import UserError
from tests.spark.savepoints.restore_app import add_clicks

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    folder, changed = Path(options["folder"]), options.get("changed", False)
    with sqlite3.connect(folder / "rows.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER)")
        database.execute("CREATE TABLE IF NOT EXISTS counts (page TEXT, id INTEGER)")
    for part in range(options["until"]):
        if not (folder / f"in/{part * 30}.json").exists():
            add_clicks(folder, part * 30)
    checkpoint = sm.CheckpointConfig(storage=str(folder / "store"), interval="100ms")
    job = sm.Job("job", checkpoint)
    source = sm.FileSource(
        str(folder / "in"),
        format="json",
        schema="id BIGINT, page STRING",
        options={"maxFilesPerTrigger": "1"},
    )
    clicks = job.source(source, "in")

    def count() -> None:
        once = job.uid(clicks.dropDuplicates(["id"]), "once")
        job.sink(
            once.select("page", "id"), sm.SQLiteSink(str(folder / "rows.db"), "counts"), "counts"
        )

    if not changed:
        count()
    ids = clicks.select("id")
    job.sink(ids, sm.SQLiteSink(str(folder / "rows.db"), "rows"), "rows")
    job.sink(ids, sm.FileSink(str(folder / "out"), format="json"), "files")
    if changed:
        more = job.uid(clicks.where("id < 0").dropDuplicates(["page"]), "new")
        job.sink(more.select("page", "id"), sm.SQLiteSink(str(folder / "rows.db"), "more"), "more")
        count()

    def end() -> None:
        while True:
            with sqlite3.connect(folder / "rows.db") as database:
                (rows,) = database.execute("SELECT count(*) FROM rows").fetchone()
            if rows >= options["until"] * 30:
                with contextlib.suppress(UserError):  # it may be just starting, with all rows there
                    path = job.stop_with_savepoint(str(folder / "savepoints")).result()
                    (folder / "path").write_text(path)
                    break
            time.sleep(0.2)

    threading.Thread(target=end, daemon=True).start()
    job.run(options.get("restore"), parallelism=options.get("parallelism"))
