"""Whether a node and its agent run, and why not, in the API's words."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.live.node_conditions import is_cordoned, not_ready, not_running

SINCE = "2026-11-24T03:00:00Z"


def node(ready: str, **more: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": SINCE, **more}
    return {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}, condition]}}


def test_counts_a_node_as_ready_when_it_says_so() -> None:
    assert not_ready(node("True")) == ""
    assert not_ready({}) == "NotReady: no kubelet has reported"
    pressure = [{"type": "DiskPressure", "status": "False"}]
    assert not_ready({"status": {"conditions": pressure}}) == "NotReady: no kubelet has reported"


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_reports_since_when_and_why_a_node_is_not_ready(status: str) -> None:
    dead = node(status, reason="NodeStatusUnknown", message="Kubelet stopped posting\nstatus.")
    assert not_ready(dead) == (
        f"NotReady since {SINCE}: NodeStatusUnknown: Kubelet stopped posting status"
    )


def test_reports_a_cordoned_node() -> None:
    assert is_cordoned({"spec": {"unschedulable": True}})
    assert not is_cordoned({"spec": {}})


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {}, "status": status}


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]), ""),
        (pod(phase="Running", conditions=[{"type": "Ready", "status": "False"}]), "is not ready"),
        (pod(phase="Running"), "is not ready"),
        (pod(phase="Running", conditions=[{"type": "Initialized"}]), "is not ready"),
        (pod(phase="Pending"), "is Pending"),
        (pod(phase="Failed", reason="Evicted", message="low on disk"), "Evicted: low on disk"),
        (
            pod(
                phase="Pending",
                containerStatuses=[
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such"}}}
                ],
            ),
            "ImagePullBackOff: no such",
        ),
        ({"metadata": {"deletionTimestamp": SINCE}}, "is being deleted"),
    ],
)
def test_reports_why_an_agent_does_not_run(agent: dict[str, Any], reason: str) -> None:
    assert not_running(agent) == reason
