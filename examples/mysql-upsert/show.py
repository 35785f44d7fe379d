"""Prints the table's number of pages, and of clicks."""

import os
from urllib.parse import unquote, urlsplit

import pymysql

at = urlsplit(os.environ.get("MYSQL", "mysql://root@localhost:3306/test"))
connection = pymysql.connect(
    host=at.hostname or "localhost",
    port=at.port or 3306,
    user=unquote(at.username or "root"),
    password=unquote(at.password or ""),
    database=at.path[1:],
)
with connection, connection.cursor() as cursor:
    cursor.execute("SELECT count(*), sum(count) FROM clicks_per_page")
    print(*cursor.fetchone())
