"""Prints the sum of all clicks."""

import os

import psycopg

url = os.environ.get("POSTGRES", "postgresql://postgres@localhost:5432/postgres")
with psycopg.connect(url) as connection:
    print(*connection.execute("SELECT sum(clicks) FROM totals").fetchone() or ())
