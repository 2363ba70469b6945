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


def pod(restarts: int, **state: Any) -> dict[str, Any]:
    """Return a pod whose container is in a state, and was restarted so many times."""
    status = {"name": "c", "restartCount": restarts, "state": state}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}


@pytest.mark.parametrize(
    ("code", "restarts", "never"), [(3, 0, False), (3, 2, False), (3, 3, True), (0, 3, False)]
)
def test_gives_up_a_restarting_container_before_the_kubelet_does(
    code: int, restarts: int, never: bool
) -> None:
    ended = pod(restarts, terminated={"exitCode": code})
    assert (terminal_failure([ended]) is not None) is never


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
    waiting = pod(restarts, waiting={"reason": reason})
    assert (terminal_failure([waiting]) is not None) is never


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def running(ready_for: float | None, *, phase: str = "Running", **status: Any) -> dict[str, Any]:
    """Return a pod that has been ready for so many seconds, None: that is not."""
    conditions = []
    if ready_for is not None:
        since = (NOW - timedelta(seconds=ready_for)).isoformat()
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": phase, "conditions": conditions, **status},
    }


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
    assert (not_stable([running(ready_for, phase=phase)], NOW) is None) is settled


def test_counts_readiness_from_creation_without_a_transition_time() -> None:
    created = running(0)
    created["metadata"]["creationTimestamp"] = (NOW - timedelta(seconds=60)).isoformat()
    created["status"]["conditions"][0]["lastTransitionTime"] = None
    assert not_stable([created], NOW) is None
    assert not_stable([created], NOW - timedelta(seconds=59)) == "pod p has just become ready"


def test_does_not_wait_for_a_clock_that_is_behind_the_clusters() -> None:
    assert not_stable([running(-15 * 60)], NOW) is None


@pytest.mark.parametrize(
    ("probe", "settled"),
    [("readinessProbe", True), ("startupProbe", True), ("livenessProbe", False)],
)
def test_counts_a_probed_container_as_settled_at_once(probe: str, settled: bool) -> None:
    probed = running(0)
    probed["spec"]["containers"][0][probe] = {"exec": {"command": ["true"]}}
    assert (not_stable([probed], NOW) is None) is settled


@pytest.mark.parametrize(
    ("code", "ready_for", "settled"), [(0, 3, True), (3, 3, False), (3, 9, False), (3, 11, True)]
)
def test_waits_longer_for_a_container_that_failed_before(
    code: int, ready_for: float, settled: bool
) -> None:
    before = {"lastState": {"terminated": {"exitCode": code}}}
    failed = running(ready_for, containerStatuses=[before])
    assert (not_stable([failed], NOW) is None) is settled


def test_reports_a_paused_deployment() -> None:
    paused = deployment()
    paused["spec"]["paused"] = True
    assert readiness(paused) == "0 of 1 pods are updated: the Deployment is paused"
