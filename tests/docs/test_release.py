"""How: the files of a release are held against their schemas (check-jsonschema's copies: workflows,
templates of issues, compose), and against what they name: Make targets, pyproject.toml, paths and
ports. actionlint looks at the workflows where it is installed; no workflow is run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import seamark

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).parents[2]
WORKFLOWS = sorted((REPO / ".github/workflows").glob("*.yml"))
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    **dict.fromkeys((REPO / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"), "github-issue-forms"),
    REPO / ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    REPO / ".github/dependabot.yml": "dependabot",
    REPO / "compose.yaml": "compose-spec",
    REPO / "src/seamark/operations/project/compose.yaml": "compose-spec",
}
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_each_file_fits_its_schema(path: Path, tmp_path: Path) -> None:
    def checked(file: Path) -> subprocess.CompletedProcess[str]:
        check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
        return subprocess.run(
            [*check, f"vendor.{SCHEMAS[path]}", file], capture_output=True, text=True, check=False
        )

    done = checked(path)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / path.name
    wrong.write_text(path.read_text() + "\nnothing-known: {a: [1]}\n")
    assert SCHEMAS[path] == "github-issue-config" or checked(wrong).returncode == 1


def test_workflows_call_make_targets_that_exist_with_the_least_rights() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (REPO / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for path in WORKFLOWS:
        flow = loaded(path)
        assert flow["permissions"] == {"contents": "read"}, path.name
        for name, job in flow["jobs"].items():
            assert "uses" in job or job["timeout-minutes"], name
            for step in job.get("steps", ()):
                if found := re.match(r"make ((?:[a-z-]+ ?)+)", step.get("run", "")):
                    called |= set(found[1].split())
                assert not re.search(r"\$\{\{", step.get("run", "")), "by `env`, not into a shell"
                at = step.get("uses", "@" + "0" * 40).partition("@")[2]
                assert re.fullmatch(r"[0-9a-f]{40}", at) or step["uses"].startswith("pypa/"), step
    assert {"lint", "test", "dist", "audit", "sbom", "test-spark"} <= called
    assert called - targets == set()


def test_every_python_and_spark_is_in_the_matrix() -> None:
    jobs = loaded(REPO / ".github/workflows/ci.yml")["jobs"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons[0] == PROJECT["requires-python"].removeprefix(">=")
    tried = {c.split(" :: ")[-1] for c in PROJECT["classifiers"] if "Python :: 3." in c}
    assert tried <= set(pythons)
    sparks = jobs["spark"]["strategy"]["matrix"]["spark"]
    makefile = (REPO / "Makefile").read_text()
    assert re.findall(r"^VERSION \?= (.*)$", makefile, re.MULTILINE)[0] in sparks
    pinned = re.findall(r"pyspark==(\d\.\d)\.\*", makefile)
    assert {version[:3] for version in sparks} | set(pinned) == {"4.0", "4.1", "4.2"}


def test_actionlint_takes_the_workflows() -> None:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed; the job `lint` of ci.yml runs it")
    done = subprocess.run([program, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_compose_mounts_is_there_and_no_port_is_taken_twice() -> None:
    compose = loaded(REPO / "compose.yaml")
    ports = []
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w./-]+:v?\d[\w.]*", service["image"]), "a version, not `latest`"
        ports += service["ports"]
        for mounted in service.get("volumes", ()):
            assert (REPO / mounted.split(":")[0]).is_file(), mounted
        for config in service.get("configs", ()):
            yaml.safe_load(compose["configs"][config["source"]]["content"])
    assert len(set(ports)) == len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)
    mounted = {v.split(":")[0] for s in compose["services"].values() for v in s.get("volumes", ())}
    assert {Path(name).name for name in mounted} == {"alerts.yml", "grafana-dashboard.json"}
    project = loaded(REPO / "src/seamark/operations/project/compose.yaml")["services"]
    for name, service in project.items():
        assert compose["services"][name]["image"] == service["image"]
        assert compose["services"][name].get("command") == service.get("command")


def test_prometheus_finds_a_driver_as_the_file_says() -> None:
    text = (REPO / "compose.yaml").read_text()
    (port,) = re.findall(r"rest\.port=(\d+)", text)
    scraped = yaml.safe_load(loaded(REPO / "compose.yaml")["configs"]["prometheus"]["content"])
    (job,) = scraped["scrape_configs"]
    assert job["job_name"] == "seamark"  # as the rule SeamarkDriverUnreachable has it
    assert job["static_configs"] == [{"targets": [f"host.docker.internal:{port}"]}]


def test_the_conda_recipe_has_pips_dependencies() -> None:
    recipe = loaded(REPO / "packaging/conda/recipe.yaml")
    assert recipe["context"]["version"] == seamark.__version__
    assert recipe["about"]["license"] == PROJECT["license"]
    for name in recipe["about"]["license_file"]:
        assert (REPO / name).is_file(), name
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script.split(" = ") == ["seamark", PROJECT["scripts"]["seamark"]]

    def bare(requirement: str) -> str:
        return re.sub(r"\[.*?\]|;.*|\s", "", requirement).replace("-", "_").lower()

    def split(requirement: str) -> tuple[str, frozenset[str]]:
        name, bounds = re.findall(r"^(\w+)(.*)$", requirement)[0]
        return name, frozenset(bounds.split(","))

    extras = PROJECT["optional-dependencies"]
    needed = {bare(one) for one in (*PROJECT["dependencies"], *extras["driver"])}
    python = f"python{PROJECT['requires-python']}"
    assert {bare(one) for one in recipe["requirements"]["run"]} == needed | {python}
    # conda-forge's names of the other packages
    names = {"python_confluent_kafka": "confluent_kafka", "redis_py": "redis"}
    others = {bare(one) for extra in extras.values() for one in extra}
    for one in recipe["requirements"]["run_constraints"]:
        name, bounds = split(bare(one))
        found = [split(other) for other in others]
        assert (names.get(name, name), bounds) in found, one


def test_the_image_of_the_dockerfile_has_extras_that_exist() -> None:
    text = (REPO / "docs/deploy/Dockerfile").read_text()
    (extras,) = re.findall(r"pyspark-seamark\[([\w,]+)\]", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "[Dockerfile](Dockerfile)" in (REPO / "docs/deploy/kubernetes.md").read_text()


def test_a_release_gets_its_addresses_and_no_other_version(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("addresses", REPO / "packaging/addresses.py")
    assert spec is not None and spec.loader is not None
    addresses = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(addresses)
    for name in ("pyproject.toml", "README.md", "src/seamark/model/packages.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    with pytest.raises(SystemExit, match=f"is not v{re.escape(seamark.__version__)}"):
        addresses.give(tmp_path, "https://forge.example/o/seamark", "v9.9.9")
    tag = f"v{seamark.__version__}"
    addresses.give(tmp_path, "https://forge.example/o/seamark/", tag)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Issues"] == "https://forge.example/o/seamark/issues"
    assert project["scripts"] == PROJECT["scripts"]
    readme = (tmp_path / "README.md").read_text()
    links = re.findall(r"\]\(([^)\s]+)", readme)
    assert not [link for link in links if not link.startswith(("https://", "#"))]
    assert f"https://forge.example/o/seamark/blob/{tag}/docs/guarantees.md" in links
    assert f"https://forge.example/o/seamark/raw/{tag}/docs/demo.svg" in links


def test_the_changelog_is_one_screen_about_this_version() -> None:
    text = (REPO / "CHANGELOG.md").read_text()
    (version, *_) = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert seamark.__version__.removesuffix(".dev0") == version
    assert len(text.split("\n## ")[1].split()) < 600
