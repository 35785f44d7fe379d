"""Prints the number of orders in the table, and of different ones."""

import os

import psycopg

url = os.environ.get("POSTGRES", "postgresql://postgres@localhost:5432/postgres")
with psycopg.connect(url) as connection:
    print(*connection.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone() or ())
