"""The process from which Spark forks its Python workers; `session.py` names it to Spark.

Spark puts its own `pyspark.zip` first on its workers' path. Python keeps no compiled code for
modules in a zip file, so each process would compile PySpark anew: a second of a job's start, and of
every restart. A PySpark installed by pip has the same modules beside this zip file.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def installed_first(path: list[str]) -> list[str]:
    """Return the module path with the zip files of an installed PySpark moved to its end. The zip
    files of any other Spark stay in place: their PySpark may be of another version."""
    zips = [entry for entry in path if Path(entry).parts[-3:-1] == ("python", "lib")]
    others = [entry for entry in path if entry not in zips]
    spec = PathFinder.find_spec("pyspark", others)
    if spec is None or spec.origin is None:
        return path
    own = Path(spec.origin).parent / "python/lib"
    moved = [entry for entry in zips if Path(entry).parent == own]
    return [*(entry for entry in path if entry not in moved), *moved]


if __name__ == "__main__":
    sys.path[:] = installed_first(sys.path)
    from pyspark.daemon import manager

    manager()
