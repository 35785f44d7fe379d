"""Sixty rows into JSON files, two files an epoch."""

import seamark as sm
from seamark.sources.fields import RandomInt, Sequence

job = sm.Job("to-files", sm.CheckpointConfig(storage="checkpoints"))
rows = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        partitions=2,
        fields={"id": Sequence(), "amount": RandomInt(1, 100)},
    ),
    uid="rows",
)
job.sink(rows, sm.FileSink("out", "json"), uid="files")

if __name__ == "__main__":
    job.run()
