"""Prints the copy."""

import os

import psycopg

url = os.environ.get("POSTGRES", "postgresql://postgres@localhost:5432/postgres")
with psycopg.connect(url) as connection:
    for row in connection.execute("SELECT id, name, amount FROM orders_copy ORDER BY id"):
        print(*row)
