"""Clicks counted per user into SQLite, until the job is stopped."""

from pyspark.sql import functions as F

import seamark as sm

job = sm.Job("accounts", sm.CheckpointConfig(interval="1s"), output_mode="update")
clicks = job.source(sm.DatagenSource(rows_per_second=50), uid="clicks")
per_user = clicks.groupBy("user").agg(F.count("*").alias("clicks"), F.max("row").alias("last"))
job.uid(per_user, "per-user")
job.sink(per_user, sm.SQLiteSink("accounts.db", "accounts", keys=["user"]), uid="sqlite")

if __name__ == "__main__":
    job.run()
