"""Class archives for the tests' own JVMs, made by `make` before tests.

Tests start hundreds of short-lived Spark JVMs, and each spends half its time loading the same
classes. Other options of Java's than a user's driver has need archives of their own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from seamark.model.errors import SeamarkError
from seamark.spark import class_archive

PLACE = Path(sys.prefix) / "class-archives"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=160m"
"""Half of these JVMs' lives would go to the optimising compiler, and half a second to a full
collection, once classes have filled the small first heap."""
_MADE = class_archive.variables(PLACE)
JAVA_OPTIONS = f"{SHORT_LIVED} {_MADE.get(class_archive.SUBMIT_VARIABLE, '')}"
LAUNCHER_OPTIONS = _MADE.get(class_archive.LAUNCHER_VARIABLE, "")
"""For Spark's scripts; they win over `JAVA_OPTIONS`. The launcher would map Spark's archive, find
another class path, and load its classes without any: three times the CPU."""


def make() -> None:
    """Write the archives. Where this Java cannot, say so: tests pass without them, but slower."""
    os.environ["JAVA_TOOL_OPTIONS"] = SHORT_LIVED
    try:
        class_archive.make(PLACE)
    except SeamarkError as error:
        print(f"tests are slower: {error}")


if __name__ == "__main__":
    make()
