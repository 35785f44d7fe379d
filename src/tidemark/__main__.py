"""``python -m tidemark``: the command line, `cli/main.py`."""

from tidemark.cli.main import app

if __name__ == "__main__":
    app(prog_name="tidemark")
