"""Sixty notes into the sink of `notes_sink.py`."""

from pathlib import Path

from notes_sink import NoteSink

import seamark as sm
from seamark.sources.fields import Sequence

job = sm.Job("notes", sm.CheckpointConfig(storage="checkpoints"))
rows = job.source(
    sm.DatagenSource(
        rows_per_second=10, number_of_rows=60, rows_per_epoch=20, fields={"id": Sequence()}
    ),
    uid="rows",
)
notes = rows.selectExpr("concat('note ', id) AS text")
job.sink(notes, NoteSink(str(Path("notes").absolute())), uid="notes")

if __name__ == "__main__":
    job.run()
