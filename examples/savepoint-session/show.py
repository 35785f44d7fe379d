"""Prints the clicks counted, and the clicks made until then: as many, or some were lost or doubled.

Clicks are numbered from 0.
"""

import sqlite3

with sqlite3.connect("accounts.db") as database:
    (counted, last) = database.execute("SELECT sum(clicks), max(last) FROM accounts").fetchone()
print(f"counted {counted} of {last + 1}")
