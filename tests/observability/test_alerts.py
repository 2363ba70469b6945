"""The alert rules, tried by promtool on made-up series: each fires for its cause and no other."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.render.alerts import alert_groups
from tests.observability.prometheus import PROMTOOL

pytestmark = pytest.mark.lab

STATE = 'divvy_gpu_state{node="n1",gpu="0",uuid="GPU-a",state="%s"}'
PROFILE = 'divvy_node_profile{node="n1",pool="p",profile="a",source="pool",generation="%s"}'
OVER = 'divvy_memory_over_limit_mib{node="n1",namespace="team",pod="hog",resource="r",uuid="GPU-a"}'
OPENED = 'divvy_share_gate_opened{node="n1",namespace="team",pod="p",container="c",uuid="GPU-a"}'
# what the series show → the alert that fires after ten minutes
CAUSES = {
    "DivvyGpuUnhealthy": (STATE % "Degraded", "1x10"),
    "DivvyProfileNotApplied": (STATE % "Blocked", "1x10"),
    "DivvyNodeOnOldConfiguration": (PROFILE % "old", "1x10"),
    "DivvyMemoryOverShare": (OVER, "200x10"),
    "DivvyShareKeepsNoTurns": (OPENED, "0+3x10"),
}
CALM = {
    STATE % "Degraded": "0x10",
    STATE % "Waiting": "1x10",
    PROFILE % "new": "1x10",
    OVER: "0x10",
    # Two kernels in five minutes that took long.
    OPENED: "0 1 1 1 2 2 2 3 3 3 3",
}


def promtool_says(folder: Path, series: dict[str, str], firing: str | None) -> str:
    """Return promtool's complaint if any other alert than ``firing`` fires, or that one not."""
    rules = {"groups": alert_groups("new")}
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    checked = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint=all", folder / "rules.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    expectations = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": "10m",
            "exp_samples": [{"labels": f'{{alertname="{firing}"}}', "value": 1}] if firing else [],
        }
    ]
    test: dict[str, Any] = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": one, "values": run} for one, run in series.items()],
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


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    assert promtool_says(tmp_path, CALM, None) == ""


@pytest.mark.parametrize("alert", sorted(CAUSES))
def test_an_alert_fires_for_its_cause_alone(alert: str, tmp_path: Path) -> None:
    series, values = CAUSES[alert]
    assert promtool_says(tmp_path, {**CALM, series: values}, alert) == ""
    assert "failed" in promtool_says(tmp_path, {**CALM, series: values}, None).lower()


def test_every_alert_has_a_cause_here() -> None:
    (group,) = alert_groups("new")
    assert {rule["alert"] for rule in group["rules"]} == set(CAUSES)
