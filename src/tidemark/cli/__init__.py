"""The `tidemark` command: argument parsing only. Start with `main.py`; work is in `operations`."""
