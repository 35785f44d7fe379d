"""How: Prometheus's own `promtool` checks the alert rules of docs/operations and runs their tests
(alerts_test.yml): each rule fires once and is silent once. Rules made silent, one at a time, must
fail those tests. The dashboard's queries are checked as rules, too.

The metrics are checked on a real job: tests/integration/jobs/test_metrics.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.needed import needed
from tests.servers.promtool import find_promtool

REPO = Path(__file__).resolve().parents[2]
ALERTS = REPO / "docs/operations/alerts.yml"
TESTS = REPO / "tests/docs/alerts_test.yml"
DASHBOARD = REPO / "docs/operations/grafana-dashboard.json"

Promtool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Promtool:
    with needed("promtool"):
        program = find_promtool(tmp_path_factory.mktemp("promtool"))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *map(str, arguments)],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def test_the_rules_are_rules_and_fire_when_they_must(promtool: Promtool) -> None:
    checked = promtool("check", "rules", ALERTS)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


@pytest.mark.parametrize("expression", ["vector(1) == 0", "vector(1)"], ids=["never", "always"])
def test_a_rule_that_never_or_always_fires_fails_the_tests(
    promtool: Promtool, tmp_path: Path, expression: str
) -> None:
    tests = TESTS.read_text().replace("../../docs/operations/alerts.yml", "alerts.yml")
    (tmp_path / "test.yml").write_text(tests)
    passed = []
    for place, rule in enumerate(rules()):
        changed = rules()
        changed[place]["expr"] = expression
        group = {"name": "seamark", "rules": changed}
        (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": [group]}))
        if promtool("test", "rules", tmp_path / "test.yml").returncode == 0:
            passed.append(rule["alert"])
    assert passed == []


def test_the_queries_of_the_dashboard_are_queries(promtool: Promtool, tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", ())]
    queries += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    assert len(queries) > 25
    filled = [q.replace("$__rate_interval", "1m").replace("$job_name", ".*") for q in queries]
    assert not [query for query in filled if "$" in query]
    records = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(filled)]
    (tmp_path / "queries.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]})
    )
    checked = promtool("check", "rules", tmp_path / "queries.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
