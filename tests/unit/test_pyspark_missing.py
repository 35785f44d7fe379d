"""A missing or too old PySpark, or a driver without its packages: one clear line, at the first name
that needs it. Executors need none of a driver's packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import seamark
from seamark.api.settings import tomllib
from seamark.model.packages import DISTRIBUTION, DRIVER_PACKAGES

SOURCES = str(Path(seamark.__file__).parents[1])
REFUSE = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refused())
"""


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    entries = [*map(str, path), SOURCES, *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entries)},
    )  # fmt: skip


def without(*refused: str) -> str:
    return REFUSE.format(refused=refused)


def test_what_needs_no_spark_is_there_without_it() -> None:
    code = without("pyspark", "py4j") + "import seamark as sm\nsm.KafkaSink, sm.KafkaSource\n"
    assert run(code).returncode == 0
    help_ = without("pyspark", "py4j") + (
        "from seamark.cli.main import app\napp(['--help'], prog_name='seamark')"
    )
    assert "Run a job" in run(help_).stdout


@pytest.mark.parametrize("name", ["Job", "write_stream", "keyed_process", "Savepoint"])
def test_a_missing_pyspark_is_one_line(name: str) -> None:
    done = run(without("pyspark", "py4j") + f"import seamark as sm\nsm.{name}\n")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("MissingDependencyError: PySpark is not installed; pip install")
    assert "Traceback" not in done.stderr


def test_a_verb_without_pyspark_is_one_line(tmp_path: Path) -> None:
    done = run(
        without("pyspark", "py4j")
        + "from seamark.cli.main import app\n"
        + f"app(['list', '--storage', {tmp_path.as_uri()!r}], prog_name='seamark')"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("seamark: PySpark is not installed; pip install")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("refused", "arguments"),
    [
        ("kafka", ["txn", "list", "--bootstrap-servers", "127.0.0.1:1"]),
        ("confluent_kafka", ["topic", "tail", "clicks"]),
        ("psycopg", ["dev", "postgres"]),
    ],
)
def test_a_verb_without_its_package_is_one_line(refused: str, arguments: list[str]) -> None:
    done = run(
        without(refused)
        + "from seamark.cli.main import app\n"
        + f"app({arguments!r}, prog_name='seamark')"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'pyspark-seamark[" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("refused", "name"),
    [(("pyspark", "py4j"), "PySpark"), (("pandas",), "PySpark"), (("confluent_kafka",), "brokers")],
)
def test_the_doctor_goes_on_without_it_and_names_the_line(
    refused: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    arguments = ["doctor", "--json", "--storage", str(tmp_path), "--bootstrap-servers", "h:1"]
    done = run(
        without(*refused)
        + "from seamark.cli.main import app\n"
        + f"app({arguments!r}, prog_name='seamark')"
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks[name]["missing"]
    assert checks[name]["remedy"].startswith("pip install")
    assert not checks["storage"]["missing"]


@pytest.mark.parametrize(
    ("arguments", "code"), [(["topic", "--help"], 0), (["list", "--nothing-known"], 2)]
)
def test_help_and_a_wrong_option_need_no_pyspark(arguments: list[str], code: int) -> None:
    done = run(
        without("pyspark", "py4j")
        + "from seamark.cli.main import app\n"
        + f"app({arguments!r}, prog_name='seamark')"
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_pyspark_too_old_is_one_line(tmp_path: Path) -> None:
    old = tmp_path / "pyspark"
    old.mkdir()
    (old / "__init__.py").write_text("raise SystemExit('imported')")
    (old / "version.py").write_text('__version__: str = "3.5.8"\n')
    done = run("import seamark as sm\nsm.Job\n", tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"MissingDependencyError: PySpark 3.5.8 in {old} is too old")
    assert "Traceback" not in done.stderr


def test_a_driver_without_pandas_is_told_who_needs_it() -> None:
    done = run(without("pandas") + "import seamark as sm\nsm.Job\n")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("MissingDependencyError: PySpark's mapInArrow needs pandas")


def test_a_keyed_function_without_protobuf_is_told_who_needs_it() -> None:
    done = run(
        without("google")
        + "import seamark as sm\nsm.keyed_process(0, 0, 0, uid='a', output_schema=0)\n"
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("MissingDependencyError: keyed_process 'a': Spark's transformWithState")
    assert "pip install 'protobuf" in last


def test_a_driver_without_its_packages_is_one_line() -> None:
    done = run(without("fastapi", "uvicorn") + "import seamark as sm\nsm.KafkaSink\nsm.Job\n")
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1] == (
        "MissingDependencyError: a driver and the command line need fastapi, uvicorn: "
        "pip install 'pyspark-seamark[driver]'"
    )
    command = run(without("typer") + "from seamark.__main__ import main\nmain()\n")
    assert (command.returncode, command.stdout) == (2, "")
    assert command.stderr == (
        "seamark: a driver and the command line need typer: pip install 'pyspark-seamark[driver]'\n"
    )


def test_what_an_executor_installs_brings_nothing_of_a_driver() -> None:
    project = tomllib.loads((Path(SOURCES).parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def packages(requirements: list[str]) -> set[str]:
        names = set()
        for each in requirements:
            name, of = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", each).groups()  # type: ignore[union-attr]
            if name == DISTRIBUTION:
                names |= packages([r for extra in of.split(",") for r in extras[extra]])
            else:
                names.add(name.replace("-", "_").lower())
        return names

    assert packages(extras["driver"]) == set(DRIVER_PACKAGES)
    on_executors = extras.keys() - {"driver", "verify", "all", "demo", "dev"}
    assert {"kafka", "postgres", "s3"} < on_executors
    needed = packages([*project["dependencies"], *(r for e in on_executors for r in extras[e])])
    assert not needed & set(DRIVER_PACKAGES)
