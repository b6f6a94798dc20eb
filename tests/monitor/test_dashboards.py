"""What Grafana's own tools would complain about, held without a Grafana server."""

import json
import re
from itertools import combinations
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard as model

from dupt_swarm.metrics.peer import PEER_METRICS
from dupt_swarm.metrics.spec import MetricSpec
from monitor.collector import METRICS
from monitor.dashboards import DASHBOARDS
from monitor.dashboards.__main__ import FOLDER
from monitor.dashboards.board import Dashboard

PROMETHEUS = FOLDER.parents[1] / "prometheus"
PROVISIONING = FOLDER.parent / "provisioning"
SPECS = {spec.name: spec for spec in (*METRICS, *PEER_METRICS)}
PARTS = ("_bucket", "_sum", "_count")
NAME = re.compile(r"(?<![\w:])dupt_(?:swarm|monitor|peer)_\w+")
# In no panel and no rule, and why.
UNUSED: dict[str, str] = {}

every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.title)


def panels_of(dashboard: Dashboard) -> list[dict[str, Any]]:
    return [panel for panel in dashboard.to_dict()["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Every query of every dashboard and every rule."""
    queries = [query.expr for board in DASHBOARDS for panel in board.panels for query in panel.queries]
    return queries + [rule["expr"] for rule in rules()]


def spec_of(series: str) -> MetricSpec | None:
    """The row of the tables that a series belongs to."""
    if series in SPECS:
        return None if SPECS[series].kind == "histogram" else SPECS[series]
    part = next((part for part in PARTS if series.endswith(part)), "")
    spec = SPECS.get(series.removesuffix(part)) if part else None
    return spec if spec and spec.kind == "histogram" else None


@every_dashboard
def test_committed_json_is_what_the_generator_makes(dashboard: Dashboard) -> None:
    """`make dashboards` has been run since the last change, and nobody has edited its output."""
    assert (FOLDER / dashboard.file_name).read_text(encoding="utf-8") == dashboard.to_json()


def test_no_dashboard_is_left_over() -> None:
    """The folder holds the generated dashboards and nothing else."""
    assert {path.name for path in FOLDER.iterdir()} == {board.file_name for board in DASHBOARDS}


@every_dashboard
def test_grafanas_model_knows_every_field(dashboard: Dashboard) -> None:
    """Read into the classes of Grafana's SDK and written again, nothing of the JSON is lost or changed."""
    tree = dashboard.to_dict()
    assert lost(tree, through_the_model(tree)) == []


def through_the_model(tree: dict[str, Any]) -> dict[str, Any]:
    """A dashboard, read into the SDK's classes and written again."""
    plugins.register_default_plugins()
    again = json.dumps(model.Dashboard.from_json(tree), cls=encoder.JSONEncoder)
    return dict(json.loads(again))


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Where ``after`` does not have what ``before`` has; more is no loss."""
    if isinstance(before, dict) and isinstance(after, dict):
        missing = [f"{path}/{key}" for key in before.keys() - after.keys()]
        return missing + [
            line
            for key in before.keys() & after.keys()
            for line in lost(before[key], after[key], f"{path}/{key}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for place, (one, other) in pairs for line in lost(one, other, f"{path}/{place}")]
    return [] if before == after else [path]


@every_dashboard
def test_the_model_would_notice(dashboard: Dashboard) -> None:
    """A misspelt option does not pass the check above, whatever the kind of panel."""
    for place in range(len(dashboard.panels) + len(dashboard.rows)):
        tree = dashboard.to_dict()
        panel = tree["panels"][place]
        if panel["type"] != "row":
            panel["options"]["misspelt"] = panel["targets"][0]["misspelt"] = 1
            where = f"/panels/{place}"
            assert sorted(lost(tree, through_the_model(tree))) == [
                f"{where}/options/misspelt",
                f"{where}/targets/0/misspelt",
            ]


@every_dashboard
def test_every_panel_explains_itself(dashboard: Dashboard) -> None:
    """Title, unit, words for no data, and a description that ends with the names of its metrics."""
    for panel in panels_of(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["noValue"], panel["title"]
        text, _, names = panel["description"].partition("\n\nMetrics: ")
        assert len(text) > 15, panel["title"]
        asked = {
            spec.name
            for target in panel["targets"]
            for series in NAME.findall(target["expr"])
            if (spec := spec_of(series))
        }
        assert set(names.split(", ")) == asked, panel["title"]


@every_dashboard
def test_the_data_source_is_a_choice(dashboard: Dashboard) -> None:
    """No panel, query or variable names a data source of its own."""
    tree = dashboard.to_dict()
    source, choice = tree["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    for place in (choice, *panels_of(dashboard), *(t for p in panels_of(dashboard) for t in p["targets"])):
        assert place["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@every_dashboard
def test_panels_have_their_own_place(dashboard: Dashboard) -> None:
    """Ids and titles are unique, nothing overlaps, nothing sticks out on the right."""
    placed = dashboard.to_dict()["panels"]
    assert len({panel["id"] for panel in placed}) == len(placed)
    titles = [(panel["type"], panel["title"]) for panel in placed]
    assert len(set(titles)) == len(titles)
    for panel in placed:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
    for one, other in combinations(placed, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart = apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart, (one["title"], other["title"])


@every_dashboard
def test_queries_ask_for_what_is_shown(dashboard: Dashboard) -> None:
    """Every query selects by the dashboard's choice, so that two swarms or peers are never mixed."""
    for panel in dashboard.panels:
        for query in panel.queries:
            if not all(spec.name.startswith("dupt_monitor_") for spec in query.specs):
                assert f"${dashboard.choice.label}" in query.expr, panel.title


@every_dashboard
def test_numbers_are_of_now(dashboard: Dashboard) -> None:
    """A single number asks for now only: over a range, the last of what has gone would stay for hours."""
    targets = [
        target for panel in panels_of(dashboard) if panel["type"] == "stat" for target in panel["targets"]
    ]
    asked = {(target["expr"], target["instant"], target["range"]) for target in targets}
    assert asked == {(target["expr"], True, False) for target in targets}


def test_every_metric_asked_for_exists() -> None:
    """No dashboard, variable or rule names a metric that is in none of the tables."""
    for expression in (*expressions(), *(board.choice.spec.name for board in DASHBOARDS)):
        for name in NAME.findall(expression):
            assert spec_of(name), f"{name} in {expression}"


def test_every_metric_is_shown() -> None:
    """Each metric of the tables is in a panel or a rule, or there is a reason why not."""
    asked = {spec.name for text in expressions() for name in NAME.findall(text) if (spec := spec_of(name))}
    assert SPECS.keys() - asked == UNUSED.keys()


def test_rates_are_of_counters_only() -> None:
    """`rate` and `increase` of a gauge would be nonsense, and a counter is of no use without them."""
    for expression in expressions():
        for name in re.findall(r"(?:rate|increase)\((dupt_\w+)", expression):
            spec = spec_of(name)
            assert spec is not None
            assert spec.kind in ("counter", "histogram"), expression
    totals = {"dupt_swarm_tokens_total", "dupt_peer_tokens_total", "dupt_swarm_peer_tokens_total"}
    totals.add("dupt_swarm_peer_failed_rounds_total")
    for expression in expressions():
        for name in NAME.findall(expression):
            spec = spec_of(name)
            if spec and spec.kind == "counter" and name not in totals:
                assert re.search(rf"(?:rate|increase)\({name}\b", expression), expression


def test_alerts_say_what_to_do() -> None:
    """Each alert has a severity, a summary, a description and a runbook, and is one of the few agreed on."""
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert alerts.keys() == {
        "DuptSwarmStalled",
        "DuptSwarmTooFewPeers",
        "DuptLossDiverging",
        "DuptAveragingFailing",
        "DuptReplicasDisagree",
        "DuptCheckpointStale",
        "DuptMonitorStale",
        "DuptMonitorDown",
    }
    for rule in alerts.values():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert rule["for"]


def test_every_alert_is_tested() -> None:
    """Each alert and each recording rule appears in the tests that promtool runs."""
    tests = "".join(path.read_text() for path in (PROMETHEUS / "tests").glob("*.yml"))
    for rule in rules():
        assert str(rule.get("alert", rule.get("record"))) in tests


def test_provisioning() -> None:
    """Grafana is told of the data source and of the folder with the dashboards."""
    source = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "$DUPT_PROMETHEUS_URL")
    providers = yaml.safe_load((PROVISIONING / "dashboards" / "dupt.yml").read_text())["providers"]
    assert providers[0]["options"]["path"] == "/var/lib/grafana/dashboards"
