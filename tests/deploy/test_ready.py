"""When a workload is ready, when it never will be, and which pods count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from divvy.deploy.ready import not_stable, readiness, selector_text, terminal_failure


def daemon_set(**status: int) -> dict[str, Any]:
    return {
        "kind": "DaemonSet",
        "metadata": {"generation": 2},
        "spec": {},
        "status": {"observedGeneration": 2, "desiredNumberScheduled": 3, **status},
    }


def deployment(**status: int) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, **status},
    }


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}, True),
        # The API leaves out what is 0: these are the pods of the older template.
        ({"replicas": 1, "readyReplicas": 1}, False),
        ({"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}, False),
        ({"replicas": 1, "updatedReplicas": 1}, False),
        ({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "observedGeneration": 1}, False),
    ],
)
def test_counts_a_deployment_as_ready_when_its_new_pods_are(
    status: dict[str, int], ready: bool
) -> None:
    assert (readiness(deployment(**status)) is None) is ready


def test_counts_a_daemonset_as_ready_when_every_pod_is_new_and_ready() -> None:
    assert readiness(daemon_set(updatedNumberScheduled=3, numberReady=3)) is None
    assert readiness(daemon_set(updatedNumberScheduled=2, numberReady=3)) is not None
    assert readiness(daemon_set(updatedNumberScheduled=3, numberReady=2)) is not None


@pytest.mark.parametrize(
    ("selector", "query"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2,hash=x"),
        # The API server reads no query that begins with a comma.
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "hash=x"),
    ],
)
def test_asks_for_the_pods_of_any_selector(selector: dict[str, Any], query: str) -> None:
    assert selector_text({"spec": {"selector": selector}}, hash="x") == query


def pod(reason: str, restarts: int) -> dict[str, Any]:
    status = {"name": "c", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}


@pytest.mark.parametrize(
    ("code", "restarts", "never"), [(3, 0, False), (3, 2, False), (3, 3, True), (0, 3, False)]
)
def test_gives_up_a_restarting_container_before_the_kubelet_does(
    code: int, restarts: int, never: bool
) -> None:
    state = {"terminated": {"exitCode": code}}
    status = {"name": "c", "restartCount": restarts, "state": state}
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}
    assert (terminal_failure([pod]) is not None) is never


@pytest.mark.parametrize(
    ("reason", "restarts", "never"),
    [
        # An application that waits for its database by ending is given another try or two.
        ("CrashLoopBackOff", 2, False),
        ("CrashLoopBackOff", 3, True),
        ("ErrImagePull", 0, False),
        ("ImagePullBackOff", 0, True),
        ("ContainerCreating", 0, False),
        ("InvalidImageName", 0, True),
    ],
)
def test_stops_waiting_early_on_what_does_not_resolve(
    reason: str, restarts: int, never: bool
) -> None:
    assert (terminal_failure([pod(reason, restarts)]) is not None) is never


@pytest.mark.parametrize(
    ("ready_for", "phase", "settled"),
    [
        (5.0, "Running", True),
        (0.5, "Running", False),
        # The workload's status may still count a pod that has just ended.
        (None, "Running", False),
        (None, "Pending", False),
        # An evicted pod stays listed beside the one that replaced it.
        (None, "Failed", True),
    ],
)
def test_counts_a_workload_as_settled_when_its_pods_have_stayed_ready(
    ready_for: float | None, phase: str, settled: bool
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    conditions = []
    if ready_for is not None:
        since = (now - timedelta(seconds=ready_for)).isoformat()
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": phase, "conditions": conditions},
    }
    assert (not_stable([pod], now) is None) is settled


def test_counts_readiness_from_creation_without_a_transition_time() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    creation = (now - timedelta(seconds=60)).isoformat()
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": None}
    pod = {
        "metadata": {"name": "p", "creationTimestamp": creation},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "conditions": [ready]},
    }
    assert not_stable([pod], now) is None
    assert not_stable([pod], now - timedelta(seconds=59)) == "pod p has just become ready"


def test_does_not_wait_for_a_clock_that_is_behind_the_clusters() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    since = (now + timedelta(minutes=15)).isoformat()
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        },
    }
    assert not_stable([pod], now) is None


@pytest.mark.parametrize(
    ("probe", "settled"),
    [("readinessProbe", True), ("startupProbe", True), ("livenessProbe", False)],
)
def test_counts_a_probed_container_as_settled_at_once(probe: str, settled: bool) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now.isoformat()}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", probe: {"exec": {"command": ["true"]}}}]},
        "status": {"phase": "Running", "conditions": [ready]},
    }
    assert (not_stable([pod], now) is None) is settled


@pytest.mark.parametrize(
    ("code", "ready_for", "settled"), [(0, 3, True), (3, 3, False), (3, 9, False), (3, 11, True)]
)
def test_waits_longer_for_a_container_that_failed_before(
    code: int, ready_for: float, settled: bool
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    since = (now - timedelta(seconds=ready_for)).isoformat()
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
            "containerStatuses": [{"lastState": {"terminated": {"exitCode": code}}}],
        },
    }
    assert (not_stable([pod], now) is None) is settled


def test_reports_a_paused_deployment() -> None:
    paused = {
        "kind": "Deployment",
        "metadata": {"generation": 1},
        "spec": {"replicas": 1, "paused": True},
        "status": {"observedGeneration": 1},
    }
    assert readiness(paused) == "0 of 1 pods are updated: the Deployment is paused"
