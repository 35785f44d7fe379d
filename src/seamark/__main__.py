"""The command ``seamark``, also as ``python -m seamark``: the command line, `cli/main.py`."""

import sys

from seamark.model.errors import MissingDependencyError
from seamark.model.packages import require_driver_packages


def main() -> None:
    """Run the command line. Without the extra ``driver`` it ends with one line and status 2."""
    try:
        require_driver_packages()
    except MissingDependencyError as error:
        print(f"seamark: {error}", file=sys.stderr)  # noqa: T201 - typer is not there
        sys.exit(2)
    from seamark.cli.main import app

    app(prog_name="seamark")


if __name__ == "__main__":
    main()
