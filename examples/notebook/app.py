"""Clicks into SQLite, a hundred an epoch: the job of `kills.ipynb`."""

import seamark as sm

job = sm.Job("clicks", sm.CheckpointConfig(storage="checkpoints"))
clicks = job.source(
    sm.DatagenSource(rows_per_second=100, number_of_rows=600, rows_per_epoch=100), uid="clicks"
)
rows = clicks.selectExpr("row AS id", "user", "page")
job.sink(rows, sm.SQLiteSink("clicks.db", "clicks"), uid="sqlite")

if __name__ == "__main__":
    job.run()
