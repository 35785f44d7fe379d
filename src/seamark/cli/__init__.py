"""The `seamark` command: argument parsing and printing; `operations` does the work.

Start with `main.py`, the list of verbs. They are grouped as in `seamark --help`: `running.py`,
`reading.py`, `changing.py`.
"""
