"""The alert rules, tried by promtool on made-up series: each fires for its cause and no other."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.model import parse_cluster
from divvy.render.objects.alerts import alert_groups
from tests.observability.prometheus import PROMTOOL

pytestmark = pytest.mark.lab

STATE = 'divvy_gpu_state{node="n1",gpu="0",uuid="GPU-a",state="%s"}'
PROFILE = 'divvy_node_profile{node="n1",pool="p",profile="a",source="pool",generation="%s"}'
OVER = 'divvy_memory_over_limit_mib{node="n1",namespace="team",pod="hog",resource="r",uuid="GPU-a"}'
OPENED = 'divvy_share_gate_opened{node="n1",namespace="team",pod="p",container="c",uuid="GPU-a"}'
REFUSED = 'divvy_share_refusals{node="n1",namespace="team",pod="p",container="c",uuid="GPU-a"}'
DAEMONS = 'kube_daemonset_status_%s{namespace="divvy-system",daemonset="divvy-agent"}'
UNAVAILABLE, DESIRED, UPDATED = (
    DAEMONS % name
    for name in ("number_unavailable", "desired_number_scheduled", "updated_number_scheduled")
)
CONTROLLER = (
    'kube_deployment_status_replicas_available{namespace="divvy-system",deployment="divvy-%s"}'
)
UP = 'up{job="divvy-agent",instance="n1"}'
UNSCHEDULABLE = 'kube_pod_status_unschedulable{namespace="team",pod="p",uid="u"}'
REQUESTS = (
    "kube_pod_container_resource_requests"
    '{namespace="team",pod="p",container="%s",resource="%s",unit="integer"}'
)
RUNBOOKS = "https://docs.example/troubleshooting"
PROFILES = {
    "together": {"mps": {"replicas": 2, "resourceName": "together"}},
    "turns": {"timeSlicing": {"replicas": 2, "resourceName": "example.com/turn-1.x"}},
    "claimed": {"claims": {}},
}
# what the series show → the alert that fires after ninety minutes
CAUSES = {
    "DivvyMpsDaemonDown": ('divvy_mps_daemon_ready{node="n1",uuid="GPU-a"}', "0x90"),
    "DivvyGpuUnhealthy": (STATE % "Degraded", "1x90"),
    "DivvyProfileNotApplied": (STATE % "Blocked", "1x90"),
    "DivvyNodeOnOldConfiguration": (PROFILE % "old", "1x90"),
    "DivvyMemoryOverShare": (OVER, "200x90"),
    "DivvyShareKeepsNoTurns": (OPENED, "0+3x90"),
    "DivvyChangeWaiting": (STATE % "Waiting", "1x90"),
    "DivvyAgentAbsent": (UNAVAILABLE, "1x90"),
    "DivvyRolloutStuck": (UPDATED, "2x90"),
    "DivvyGpuPodPending": (UNSCHEDULABLE, "1x90"),
    "DivvyControllerAbsent": (CONTROLLER % "claim-templates", "0x90"),
    "DivvyShareRefusesMemory": (REFUSED, "0+3x90"),
}
CALM = {
    STATE % "Degraded": "0x90",
    STATE % "Waiting": "1x40 0x50",
    PROFILE % "new": "1x90",
    OVER: "0x90",
    UNAVAILABLE: "1x5 0x85",
    CONTROLLER % "claim-templates": "1x30 0x5 1x55",
    # The image of its next pod cannot be pulled; the earlier one serves.
    (CONTROLLER % "claim-templates").replace("_available", "_unavailable"): "1x90",
    'kube_deployment_status_replicas_available{namespace="team",deployment="web"}': "0x90",
    UP: "1x90",
    DESIRED: "3x90",
    UPDATED: "3x90",
    UNSCHEDULABLE: "1x10 0x80",
    REQUESTS % ("a", "nvidia_com_gpu"): "1x90",
    REQUESTS % ("b", "cpu"): "1x90",
    'kube_pod_status_unschedulable{namespace="team",pod="web",uid="v"}': "1x90",
    # A program that probes how much it can get.
    REFUSED: "0x40 8x50",
    # Two kernels in five minutes that took long.
    OPENED: "0x80 1 1 1 2 2 2 3 3 3 3",
}


def groups_for(*profiles: str) -> list[dict[str, Any]]:
    """Return the rules of a cluster with these profiles."""
    value = {
        "names": {"gpu": "example.com/gpu"},
        "profiles": {"whole": {}, **{name: PROFILES[name] for name in profiles}},
        "pools": {"all": {"profile": "whole"}},
        "observability": {"runbooks": RUNBOOKS},
    }
    return alert_groups(parse_cluster(value), "new")


def promtool_says(folder: Path, series: dict[str, str], firing: str | None) -> str:
    """Return promtool's complaint if any other alert than ``firing`` fires, or that one not."""
    rules = {"groups": groups_for(*PROFILES)}
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    checked = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint=all", folder / "rules.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    expectations = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": "90m",
            "exp_samples": [{"labels": f'{{alertname="{firing}"}}', "value": 1}] if firing else [],
        }
    ]
    test: dict[str, Any] = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": metric, "values": run} for metric, run in series.items()
                ],
                "promql_expr_test": expectations,
            }
        ],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", folder / "test.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_fires_no_alert_while_all_is_well(tmp_path: Path) -> None:
    assert promtool_says(tmp_path, CALM, None) == ""


@pytest.mark.parametrize("alert", sorted(CAUSES))
def test_fires_an_alert_for_its_cause_alone(alert: str, tmp_path: Path) -> None:
    series, values = CAUSES[alert]
    assert promtool_says(tmp_path, {**CALM, series: values}, alert) == ""
    assert "failed" in promtool_says(tmp_path, {**CALM, series: values}, None).lower()


def test_has_a_cause_here_for_every_alert() -> None:
    (group,) = groups_for(*PROFILES)
    assert {rule["alert"] for rule in group["rules"]} == set(CAUSES)


def test_reports_an_agent_as_absent_without_pod_counts(tmp_path: Path) -> None:
    calm = {series: run for series, run in CALM.items() if not series.startswith("kube_")}
    assert promtool_says(tmp_path, {**calm, UP: "0x90"}, "DivvyAgentAbsent") == ""


def test_links_to_a_heading_of_the_troubleshooting_page() -> None:
    page = (Path(__file__).parents[2] / "docs/troubleshooting.md").read_text()
    headings = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    (group,) = groups_for(*PROFILES)
    for rule in group["rules"]:
        base, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert base == RUNBOOKS
        assert anchor in {heading.lower() for heading in headings}, rule["alert"]
        assert rule["alert"] in headings


def test_has_no_alert_for_what_the_cluster_has_not() -> None:
    (group,) = groups_for("turns")
    without = {"DivvyMpsDaemonDown", "DivvyControllerAbsent"}
    assert {rule["alert"] for rule in group["rules"]} == CAUSES.keys() - without


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia_com_gpu_shared",
        "nvidia_com_mig_1g_5gb",
        "nvidia_com_together",
        "example_com_turn_1_x",
        "example_com_gpu",
    ],
)
def test_sees_pods_that_wait_for_any_resource_of_the_cluster(resource: str, tmp_path: Path) -> None:
    waiting = {REQUESTS % ("a", resource): "1x90", UNSCHEDULABLE: "1x90"}
    calm = {series: run for series, run in CALM.items() if "resource_requests" not in series}
    assert promtool_says(tmp_path, calm | waiting, "DivvyGpuPodPending") == ""
