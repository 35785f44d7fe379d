"""How: the manifests of docs/deploy are held against Kubernetes's own schemas
(kubernetes-validate), and their parts against each other and against Seamark; the units are checked
by systemd-analyze. Nothing of it is run."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from seamark.cli.main import app
from tests.chaos.driver import REPOSITORY
from tests.servers.needed import NotToBeHadError, needed

DEPLOY = REPOSITORY / "docs/deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
VERSIONS = ("1.31", "1.34", "1.37")


def objects(*paths: Path) -> list[dict[str, Any]]:
    return [o for path in paths for o in yaml.safe_load_all(path.read_text()) if o]


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the labels and the spec of each pod."""
    for found in objects(*MANIFESTS):
        if template := found.get("spec", {}).get("template"):
            yield template["metadata"]["labels"], template["spec"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas(path: Path, version: str) -> None:
    found = objects(path)
    assert len(found) > 1
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_wrong_manifest_is_found() -> None:
    (job,) = (one for one in objects(*MANIFESTS) if one["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpget"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def test_every_selector_finds_its_pods() -> None:
    labels = [labels for labels, _ in pods()]
    # Spark labels executors with spark-role, and as spark.kubernetes.executor.label.app says.
    labels.append({"app": "clicks", "spark-role": "executor"})
    assert "spark.kubernetes.executor.label.app=clicks" in MANIFESTS[1].read_text()
    kinds = {"Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"}
    selected = [o for o in objects(*MANIFESTS) if o["kind"] in kinds]
    assert {one["kind"] for one in selected} == kinds
    for one in selected:
        selector = one["spec"].get("selector") or one["spec"]["podSelector"]
        wanted = selector.get("matchLabels", selector).items()
        assert any(wanted <= each.items() for each in labels), one["metadata"]["name"]


def test_ports_probes_volumes_and_settings_belong_together() -> None:
    known = (REPOSITORY / "tests/unit/rest/answers/openapi.jsonl").read_text()
    for _, spec in pods():
        (container,) = spec["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] in ports
            assert asked["path"] == "/" or f'"{asked["path"]}"' in known
        assert {m["name"] for m in container["volumeMounts"]} == {
            v["name"] for v in spec["volumes"]
        }
        for variable in container["env"]:
            place = Path(variable.get("value", ""))
            if place.is_absolute():
                assert str(place.parent) in {m["mountPath"] for m in container["volumeMounts"]}
    (config,) = (one for one in objects(*MANIFESTS) if one["kind"] == "ConfigMap")
    assert f"port = {8081}" in config["data"]["seamark.toml"]
    driver = next(spec for labels, spec in pods() if labels["seamark"] == "driver")
    assert {"name": "rest", "containerPort": 8081} in driver["containers"][0]["ports"]
    assert driver["restartPolicy"] == "OnFailure"
    (headless,) = (o for o in objects(*MANIFESTS) if o["metadata"]["name"] == "clicks-driver"
                   and o["kind"] == "Service")  # fmt: skip
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert any("spark.driver.host=clicks-driver." in a for a in driver["containers"][0]["args"])


def test_secrets_come_from_secrets_that_the_page_makes() -> None:
    text = "\n".join(path.read_text() for path in MANIFESTS)
    used = {*re.findall(r"secretKeyRef: \{name: ([\w-]+)", text),
            *re.findall(r"secretName: ([\w-]+)", text),
            *re.findall(r"secretKeyRef\.\w+=([\w-]+):", text)}  # fmt: skip
    page = (DEPLOY / "kubernetes.md").read_text()
    assert used == set(re.findall(r"create secret generic ([\w-]+)", page))
    assert all(one["kind"] != "Secret" for one in objects(*MANIFESTS))


def commands() -> Iterator[list[str]]:
    """Yield the options of each `seamark dashboard` of manifests and units."""
    for labels, spec in pods():
        if labels["seamark"] == "dashboard":
            yield [argument.partition("=")[0] for argument in spec["containers"][0]["args"]]
    for unit in UNITS:
        if found := re.search(r"seamark dashboard (.*)", unit.read_text()):
            yield [word for word in found[1].split() if word.startswith("--")]


def test_the_dashboards_options_exist() -> None:
    told = CliRunner().invoke(app, ["dashboard", "--help"], env={"COLUMNS": "200"}).output
    given = list(commands())
    assert len(given) == 2
    for option in itertools.chain.from_iterable(given):
        assert option in told, option


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    with needed("systemd-analyze"):
        program = shutil.which("systemd-analyze")
        if program is None:
            raise NotToBeHadError("no systemd-analyze on this machine")
    for name in re.findall(r"ExecStart=(\S+)", path.read_text()):
        stand_in = tmp_path / name[1:]
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text("#!/bin/sh\n")
        stand_in.chmod(0o755)
    unit = tmp_path / path.name
    unit.write_text(path.read_text().replace("/opt/clicks", f"{tmp_path}/opt/clicks"))
    done = subprocess.run(
        [str(program), "verify", str(unit)],
        capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    wrong = unit.read_text().replace("Restart=on-failure", "Restart=sometimes")
    unit.write_text(wrong)
    done = subprocess.run([str(program), "verify", str(unit)], capture_output=True, text=True)
    assert "sometimes" in done.stderr, "a wrong unit is found"
