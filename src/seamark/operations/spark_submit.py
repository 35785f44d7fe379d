"""The command line of spark-submit for a program submitted by `seamark run`.

In client mode the driver runs here and gets the options of `seamark run` in its environment. In
cluster mode it runs elsewhere: the same variables travel as settings of YARN or Kubernetes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from seamark.api.settings import COMMAND_LINE_VARIABLE
from seamark.model.errors import MissingDependencyError, UserError

SparkOptions = Mapping[str, str | Sequence[str] | None]
"""Options of spark-submit by name, with their values; each value of a sequence repeats it."""

_DEPLOY_MODE = re.compile(r"^\s*spark\.submit\.deployMode[\s=:]+(\w+)", re.MULTILINE)


def given(options: SparkOptions) -> bool:
    """Whether any option has a value: only then is the program submitted."""
    return any(options.values())


def submit_command(
    options: SparkOptions, app: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command to submit the program, and the variables to add to its environment.

    `variables` are meant for the program's environment. Raises UserError if they cannot reach a
    driver of this deploy mode, MissingDependencyError without a spark-submit.
    """
    settings = _options(options)
    if deploy_mode(options) != "cluster":
        found = dict(variables)
        if "PYSPARK_DRIVER_PYTHON" not in os.environ:
            found["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return [str(_spark_submit()), *settings, app, *arguments], found
    master = str(options.get("--master") or "")
    if master.startswith("yarn"):
        prefix = "spark.yarn.appMasterEnv."
    elif master.startswith("k8s"):
        prefix = "spark.kubernetes.driverEnv."
    else:
        raise UserError(
            f"--deploy-mode cluster with the master {master or '(none given)'}: Seamark's "
            "settings reach a driver on the cluster through --master yarn or k8s://… alone (Spark "
            "runs no Python driver on a standalone cluster); use --deploy-mode client"
        )
    for key, value in variables.items():
        if key == COMMAND_LINE_VARIABLE:  # YARN's launch script loses JSON's quotes
            value = quote(value)
        settings += ["--conf", f"{prefix}{key}={value}"]
    return [str(_spark_submit()), *settings, app, *arguments], {}


def deploy_mode(options: SparkOptions) -> str:
    """Return ``"client"`` or ``"cluster"``, as spark-submit will find it."""
    if mode := options.get("--deploy-mode"):
        return str(mode)
    for conf in options.get("--conf") or ():
        if found := _DEPLOY_MODE.match(conf):
            return found[1]
    if mode := os.environ.get("DEPLOY_MODE"):
        return mode
    home = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    path = Path(str(options.get("--properties-file") or f"{home}/spark-defaults.conf"))
    try:
        found = _DEPLOY_MODE.search(path.read_text(encoding="utf-8"))
    except OSError:  # spark-submit reports it, if the user named it
        return "client"
    return found[1] if found else "client"


def _options(options: SparkOptions) -> list[str]:
    found = []
    for name, value in options.items():
        for each in [value] if isinstance(value, str) else value or ():
            found += [name, each]
    return found


def _spark_submit() -> Path:
    """Return spark-submit of SPARK_HOME, as Spark's commands do, or of this Python's pyspark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = importlib.util.find_spec("pyspark")
        home = ((spec and spec.submodule_search_locations) or [""])[0]
    path = Path(home, "bin", "spark-submit")
    if not path.is_file():
        raise MissingDependencyError(
            f"there is no {path}; install pyspark, or set SPARK_HOME to a Spark distribution"
        )
    return path
