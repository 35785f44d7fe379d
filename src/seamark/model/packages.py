"""What Seamark is installed as, and the packages that its parts need: each is imported at its first
use, so that a job installs only the extras that it has sinks and sources for.
"""

import importlib
import importlib.util
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any

from seamark.model.errors import MissingDependencyError

VERSION = "0.1.0.dev0"
"""The version of this package. pyproject.toml and ``seamark.__version__`` take it from here."""
DISTRIBUTION = "pyspark-seamark"
"""The name on PyPI. The bare ``seamark`` there is somebody else's program."""
DRIVER_PACKAGES = ("fastapi", "prometheus_client", "rich", "typer", "uvicorn")
"""What a driver and the command line need, and no executor: the extra ``driver``."""


def install_command(extras: str) -> str:
    """Return the command that installs Seamark with `extras`, e.g. ``kafka,s3``."""
    return f"pip install '{DISTRIBUTION}[{extras}]'"


SPARK_REMEDY = install_command("spark")
NO_PYSPARK = (
    f"PySpark is not installed; {SPARK_REMEDY}, or run the program with the spark-submit of "
    "Spark 4.0 or later"
)


def require_driver_packages() -> None:
    """Raise MissingDependencyError unless the extra ``driver`` is installed. Called at the first
    use of `sm.Job` or `sm.write_stream`, and by the command line."""
    if missing := [name for name in DRIVER_PACKAGES if spec_of(name) is None]:
        raise MissingDependencyError(
            f"a driver and the command line need {', '.join(missing)}: {install_command('driver')}"
        )


def spec_of(package: str) -> ModuleSpec | None:
    """Return where a package would be imported from; None if it is not installed."""
    with suppress(ValueError, ModuleNotFoundError):  # a half-imported package has no spec
        return importlib.util.find_spec(package)
    return None


def load_driver(module: str, needs: str, extras: str) -> Any:
    """Return a driver's module, or raise MissingDependencyError: ``<needs> (…): pip install …``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{needs} ({error}): {install_command(extras)}") from None
