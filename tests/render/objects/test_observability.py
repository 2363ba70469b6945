"""Dashboard, scraping and alerts: rendered only if enabled, and about metrics that exist."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from divvy.model import canonical_json, generation, parse_cluster
from divvy.model.api_names import component_of
from divvy.render.objects.alerts import alert_groups
from divvy.render.objects.dashboard import dashboard_json
from divvy.render.objects.usage_rules import usage_group
from tests.render.documents import objects_of

STACK = Path(__file__).parents[3] / "stacks/Pulumi.lab.yaml"
AGENT = Path(__file__).parents[3] / "divvy/agent"
METRICS = (*AGENT.glob("metrics/*.py"), AGENT / "claims/service.py")
METRIC = re.compile(r"\b(?:divvy|DCGM_FI)_[A-Za-z_]+")


def by_kind(**enabled: Any) -> dict[str, dict[str, Any]]:
    value = yaml.safe_load(STACK.read_text())["config"]["divvy:cluster"]
    value["observability"] = enabled
    objects = objects_of(value, "image")
    return {obj["kind"]: obj for obj in objects if component_of(obj) == "observability"} | {
        "value": value
    }


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(dashboard_json())["panels"] if panel["type"] != "row"]


def test_renders_the_dashboard_by_default_and_operator_objects_on_request() -> None:
    assert set(by_kind()) == {"value", "ConfigMap"}
    assert set(by_kind(dashboard=False)) == {"value"}
    complete = by_kind(serviceMonitor=True, alerts=True)
    assert set(complete) == {"value", "ConfigMap", "ServiceMonitor", "PrometheusRule"}
    assert complete["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_selects_the_agents_service_and_port_in_the_monitor() -> None:
    objects = by_kind(serviceMonitor=True)
    monitor = objects["ServiceMonitor"]["spec"]
    (service,) = (obj for obj in objects_of(objects["value"], "image") if obj["kind"] == "Service")
    chosen = monitor["selector"]["matchLabels"]
    assert chosen.items() <= service["metadata"]["labels"].items()
    ports = {port["name"] for port in service["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["endpoints"]} <= ports


def test_admits_only_the_chosen_namespaces_by_a_network_policy() -> None:
    assert "NetworkPolicy" not in by_kind(serviceMonitor=True)
    readers = {"kubernetes.io/metadata.name": "monitoring"}
    objects = by_kind(networkPolicy=readers)
    spec = objects["NetworkPolicy"]["spec"]
    (agent,) = (
        obj
        for obj in objects_of(objects["value"], "image")
        if (obj["kind"], obj["metadata"]["name"]) == ("DaemonSet", "divvy-agent")
    )
    pod = agent["spec"]["template"]
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert spec["policyTypes"] == ["Ingress"]
    (rule,) = spec["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": readers}}]
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {port["port"] for port in rule["ports"]} <= ports


def test_names_the_config_maps_version_in_the_rule_on_old_configurations() -> None:
    objects = by_kind(alerts=True)
    expected = generation(canonical_json(objects["value"]))
    cluster = parse_cluster(objects["value"])
    groups = [*alert_groups(cluster, expected), usage_group(cluster)]
    assert objects["PrometheusRule"]["spec"]["groups"] == groups


def test_gives_panels_distinct_titles_numbers_and_places() -> None:
    all_panels = panels()
    assert len({panel["id"] for panel in all_panels}) == len(all_panels)
    assert len({panel["title"] for panel in all_panels}) == len(all_panels)
    assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in all_panels}) == len(all_panels)


def test_queries_only_metrics_that_the_agent_has() -> None:
    known = {name for file in METRICS for name in METRIC.findall(file.read_text())}
    known |= {f"{name}_{suffix}" for name in known for suffix in ("total", "bucket")}
    queried = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    cluster = parse_cluster(yaml.safe_load(STACK.read_text())["config"]["divvy:cluster"])
    queried |= set(METRIC.findall(json.dumps(alert_groups(cluster, "abc"))))
    rules = usage_group(cluster)["rules"]
    queried |= {name for rule in rules for name in METRIC.findall(rule["expr"])}
    assert queried
    assert queried <= known
