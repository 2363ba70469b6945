"""The engine's pure decisions: which step, what replaces, what drifted, when it is ready."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from divvy.engine.errors import StepFailed
from divvy.engine.goal import Goal, seconds
from divvy.engine.kubernetes.compare import (
    changed_paths,
    drifted_paths,
    projected,
    replacing_paths,
    without,
)
from divvy.engine.kubernetes.ready import hopeless, readiness, unsettled
from divvy.engine.plan_step import Step, plan_step
from divvy.engine.provider import Diff
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import make_urn, urn_name, urn_type
from divvy.engine.values import UNKNOWN, has_unknown, masked, secret, unwrapped

TYPE = "kubernetes:core/v1:ConfigMap"
URN = make_urn("dev", "p", "", TYPE, "cm")


def goal(**more: Any) -> Goal:
    return Goal(URN, TYPE, "cm", custom=True, inputs={}, **more)


def old(**more: Any) -> ResourceState:
    return ResourceState(URN, TYPE, custom=True, id="ns/cm", **more)


def test_a_urn_names_the_chain_of_types() -> None:
    stack = make_urn("dev", "p", "", "pulumi:pulumi:Stack", "p-dev")
    parent = make_urn("dev", "p", stack, "divvy:index:GpuCluster", "c")
    child = make_urn("dev", "p", parent, TYPE, "cm")
    assert child == f"urn:pulumi:dev::p::divvy:index:GpuCluster${TYPE}::cm"
    assert (urn_type(child), urn_name(child)) == (TYPE, "cm")


@pytest.mark.parametrize(
    ("before", "diff", "more", "expected"),
    [
        (None, None, {}, Step("create")),
        (old(), Diff(), {}, Step("same")),
        (old(), Diff(("data.a",)), {}, Step("update", ("data.a",))),
        (old(init_errors=("x",)), Diff(), {}, Step("update")),
        (
            old(),
            Diff(("metadata.name",), ("metadata.name",)),
            {},
            Step("replace", ("metadata.name",), ("metadata.name",)),
        ),
        (
            old(),
            Diff(("data.a",)),
            {"replace_on_changes": ("data",)},
            Step("replace", ("data.a",), ("data.a",)),
        ),
        (
            old(),
            Diff(("data.a",), ("data.a",)),
            {"delete_before_replace": True},
            Step("replace", ("data.a",), ("data.a",), before=True),
        ),
    ],
)
def test_the_step_follows_from_state_and_goal(
    before: ResourceState | None, diff: Diff | None, more: dict[str, Any], expected: Step
) -> None:
    assert plan_step(goal(**more), before, diff) == expected


def test_drift_alone_is_an_update() -> None:
    assert plan_step(goal(), old(), Diff(), ("data.a",)) == Step("update", ("data.a",))


def test_a_protected_resource_is_not_replaced() -> None:
    with pytest.raises(StepFailed, match="protected"):
        plan_step(goal(), old(protect=True), Diff(("kind",), ("kind",)))


def test_changed_paths_name_the_deepest_difference() -> None:
    one = {"spec": {"template": {"containers": [{"image": "a"}]}, "gone": 1}}
    other = {"spec": {"template": {"containers": [{"image": "b"}]}, "new": 2}}
    assert list(changed_paths(one, other)) == [
        "spec.gone",
        "spec.new",
        "spec.template.containers[0].image",
    ]


@pytest.mark.parametrize(
    ("kind", "path", "mutable", "replaces"),
    [
        ("ConfigMap", "data.level", True, False),
        ("ConfigMap", "data.level", False, True),
        ("ConfigMap", "metadata.name", True, True),
        ("DaemonSet", "spec.selector.matchLabels.app", True, True),
        ("DaemonSet", "spec.template.spec.containers[0].image", True, False),
        ("ClusterRoleBinding", "roleRef.name", True, True),
        ("Service", "spec.clusterIPs", True, False),
    ],
)
def test_what_cannot_change_in_place_replaces(
    kind: str, path: str, mutable: bool, replaces: bool
) -> None:
    found = replacing_paths({"kind": kind}, (path,), config_map=mutable, secret=False)
    assert bool(found) is replaces


def test_normalised_values_are_no_drift_but_edits_are() -> None:
    inputs = {"spec": {"cpu": "1000m", "list": [{"a": 1}]}}
    recorded = {"spec": {"cpu": "1", "list": [{"a": 1, "b": 2}], "added": True}}
    assert list(drifted_paths(inputs, recorded, recorded)) == []
    edited = {"spec": {"cpu": "2", "list": [{"a": 1, "b": 3}], "added": False}}
    assert list(drifted_paths(inputs, recorded, edited)) == ["spec.cpu"]


def test_refreshing_takes_live_values_at_the_programs_paths() -> None:
    assert projected({"a": 1, "b": {"c": 2}}, {"a": 5, "b": {"c": 6, "d": 7}}) == {
        "a": 5,
        "b": {"c": 6},
    }


def test_ignored_paths_keep_their_old_value() -> None:
    new, before = {"spec": {"replicas": 1, "x": 2}}, {"spec": {"replicas": 5}}
    assert without(new, ("spec.replicas",), before) == {"spec": {"replicas": 5, "x": 2}}


def test_secrets_and_unknowns_are_found_at_any_depth() -> None:
    value = {"a": [secret({"b": "hush"})], "c": UNKNOWN}
    assert has_unknown(value)
    assert masked(value)["a"] == ["[secret]"]
    assert unwrapped(value)["a"] == [{"b": "hush"}]


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("10m0s", 600)]
)
def test_go_durations_are_read(text: str, value: float) -> None:
    assert seconds(text) == value


def daemon_set(**status: int) -> dict[str, Any]:
    return {
        "kind": "DaemonSet",
        "metadata": {"generation": 2},
        "spec": {},
        "status": {"observedGeneration": 2, "desiredNumberScheduled": 3, **status},
    }


def test_a_daemonset_is_ready_when_every_pod_is_new_and_ready() -> None:
    assert readiness(daemon_set(updatedNumberScheduled=3, numberReady=3)) is None
    assert readiness(daemon_set(updatedNumberScheduled=2, numberReady=3)) is not None
    assert readiness(daemon_set(updatedNumberScheduled=3, numberReady=2)) is not None


def pod(reason: str, restarts: int) -> dict[str, Any]:
    status = {"name": "c", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}


@pytest.mark.parametrize(
    ("code", "restarts", "never"), [(3, 0, False), (3, 1, True), (0, 1, False)]
)
def test_a_container_that_ends_again_is_hopeless_before_the_kubelet_says_so(
    code: int, restarts: int, never: bool
) -> None:
    state = {"terminated": {"exitCode": code}}
    status = {"name": "c", "restartCount": restarts, "state": state}
    found = {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}
    assert (hopeless([found]) is not None) is never


@pytest.mark.parametrize(
    ("reason", "restarts", "never"),
    [
        ("CrashLoopBackOff", 1, True),
        ("ErrImagePull", 0, False),
        ("ImagePullBackOff", 0, True),
        ("ContainerCreating", 0, False),
        ("InvalidImageName", 0, True),
    ],
)
def test_waiting_ends_early_on_what_does_not_mend(reason: str, restarts: int, never: bool) -> None:
    assert (hopeless([pod(reason, restarts)]) is not None) is never


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
def test_a_workload_is_settled_when_its_pods_have_stayed_ready(
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
    assert (unsettled([pod], now) is None) is settled
