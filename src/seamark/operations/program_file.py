"""The file of a program, looked at before Python reads it: Python's own words do not name it."""

import tokenize
from pathlib import Path
from zipfile import is_zipfile

from seamark.model.errors import UserError

NO_PROGRAM = (
    'a location of format("seamark") has no program: the next start of its query commits what is '
    "decided and aborts the rest. If a decided batch is lost, start it with a new location and the "
    "option adopt: it writes the batch again (docs/data-source.md)"
)


def require_program(path: Path, option: str = "") -> None:
    """Raise UserError, which begins with `option`, unless a file that Python can run is at `path`:
    source, a zip or a ``.pyc``."""
    what = "there is no such file"
    if (path / "job.json").is_file() and not (path / "lease").is_dir():
        raise UserError(f"{option}{path}: {NO_PROGRAM}")
    if path.is_file():
        try:
            with tokenize.open(path) as source:
                if "\0" not in source.read():
                    return
            what = "it is no text"
        except OSError as error:
            what = f"it cannot be read ({error.strerror})"
        except (SyntaxError, UnicodeDecodeError) as error:
            what = f"it is no text ({error})"
        if path.suffix == ".pyc" or is_zipfile(path):
            return
    raise UserError(f"{option}{path}: {what}; give the path of a Python program")
