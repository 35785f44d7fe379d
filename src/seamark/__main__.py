"""``python -m seamark``: the command line, `cli/main.py`."""

from seamark.cli.main import app

if __name__ == "__main__":
    app(prog_name="seamark")
