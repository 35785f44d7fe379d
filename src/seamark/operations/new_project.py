"""`seamark init`: a project that runs at once, from the templates in `project/`."""

import sys
import tempfile
from pathlib import Path

from seamark.api.declarations import check_name
from seamark.model.errors import UserError

_TEMPLATES = Path(__file__).with_name("project")


def new_project(directory: Path) -> list[Path]:
    """Write a project into a new or empty directory; return its files. The job has the directory's
    name. Raises UserError for a directory in use, ConfigurationError for a name unfit for a job."""
    name = check_name(directory.absolute().name, "seamark init: NAME")
    make_empty(directory)
    made = []
    for template in sorted(_TEMPLATES.iterdir()):
        text = template.read_text(encoding="utf-8")
        text = text.replace("PYTHON_PATH", sys.executable).replace("NAME", name)
        file = directory / template.name.removesuffix(".txt").replace("gitignore", ".gitignore")
        file.write_text(text, encoding="utf-8")
        made.append(file)
    return made


def make_empty(directory: Path) -> None:
    """Make a directory for a trial. Raises UserError for one in use or that cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UserError(f"{directory} is not empty; name another directory, or remove it")
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UserError(f"{directory} cannot be made: {error}; name another directory") from None
