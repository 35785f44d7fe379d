"""The `seamark` command: argument parsing and what is shown; the work is in `operations`.

Start with `main.py`, which has the list of verbs; they are grouped as in `seamark --help`:
`running.py`, `reading.py`, `changing.py`, `development.py`.
"""
