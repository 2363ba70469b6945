"""The page of the agent names every metric that agents serve, and every alert."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from divvy.model import parse_cluster
from divvy.render.objects.alerts import alert_groups

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/agent.md").read_text()
EVERY_ALERT = parse_cluster(
    {
        "profiles": {"together": {"mps": {"replicas": 2}}, "claimed": {"claims": {}}},
        "pools": {"all": {"profile": "together"}},
    }
)
SOURCES = "".join(path.read_text() for path in sorted((ROOT / "divvy/agent").rglob("*.py")))
METRICS = sorted(set(re.findall(r'"(divvy_[a-z_]+|DCGM_FI_[A-Z_]+)"', SOURCES)))


def test_has_a_row_for_every_metric() -> None:
    assert len(METRICS) > 30
    rows = "".join(re.findall(r"^\| `.*", PAGE, re.MULTILINE))
    # A counter is served with another end.
    named = set(re.findall(r"`(\w+?)(?:_total)?`", rows))
    missing = [metric for metric in METRICS if metric not in named]
    assert not missing, f"give them a row in docs/agent.md, Metrics: {missing}"


@pytest.mark.parametrize(
    "rule", [rule["alert"] for rule in alert_groups(EVERY_ALERT, "")[0]["rules"]]
)
def test_names_every_alert(rule: str) -> None:
    assert f"`{rule}`" in PAGE
