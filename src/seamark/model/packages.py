"""What Seamark is installed as, and the packages that its parts need: each is imported at its first
use, so that a job installs only the extras that it has sinks and sources for.
"""

from __future__ import annotations

import importlib
from typing import Any

from seamark.model.errors import MissingDependencyError

DISTRIBUTION = "pyspark-seamark"
"""The name on PyPI. The bare ``seamark`` there is somebody else's program."""


def install_command(extras: str) -> str:
    """Return the command that installs Seamark with `extras`, e.g. ``kafka,s3``."""
    return f"pip install '{DISTRIBUTION}[{extras}]'"


SPARK_REMEDY = install_command("spark")
NO_PYSPARK = (
    f"PySpark is not installed; {SPARK_REMEDY}, or run the program with the spark-submit of "
    "Spark 4.0 or later"
)


def installed_version() -> str:
    """Return the version of the installed distribution."""
    from importlib import metadata  # half of the time that an executor needs for this module

    return metadata.version(DISTRIBUTION)


def load_driver(module: str, needs: str, extras: str) -> Any:
    """Return a driver's module, or raise MissingDependencyError: ``<needs> (…): pip install …``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{needs} ({error}): {install_command(extras)}") from None
