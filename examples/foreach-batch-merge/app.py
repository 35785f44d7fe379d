"""Clicks per page, added up in PostgreSQL by a MERGE of one's own."""

import os

import psycopg
from pyspark.sql import DataFrame

import seamark as sm

url = os.environ.get("POSTGRES", "postgresql://postgres@localhost:5432/postgres")
TABLES = """
    CREATE TABLE IF NOT EXISTS tokens (token text PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS totals (page text PRIMARY KEY, clicks bigint NOT NULL);
"""
MERGE = """
    MERGE INTO totals t USING (SELECT %s AS page, %s::bigint AS clicks) s ON t.page = s.page
    WHEN MATCHED THEN UPDATE SET clicks = t.clicks + s.clicks
    WHEN NOT MATCHED THEN INSERT VALUES (s.page, s.clicks)
"""


def add_up(clicks: DataFrame, token: sm.EpochToken) -> None:
    counts = [tuple(row) for row in clicks.groupBy("page").count().collect()]
    with psycopg.connect(url) as db:  # one transaction: the token and what it stands for
        new = db.execute("INSERT INTO tokens VALUES (%s) ON CONFLICT DO NOTHING", [str(token)])
        if new.rowcount == 1:
            db.cursor().executemany(MERGE, counts)


job = sm.Job("merge", sm.CheckpointConfig(storage="checkpoints"))
clicks = job.source(
    sm.DatagenSource(rows_per_second=100, number_of_rows=600, rows_per_epoch=200), uid="clicks"
)
job.sink(clicks, sm.WriteAheadSink.foreach_batch(add_up, idempotent=True), uid="totals")

if __name__ == "__main__":
    with psycopg.connect(url) as db:
        db.execute(TABLES)
    job.run()
