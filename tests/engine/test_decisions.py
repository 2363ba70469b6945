"""The engine's pure decisions: which step, what replaces, what drifted, when it is ready."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from divvy.engine.errors import NotSupported, StepFailed
from divvy.engine.goal import Goal, seconds
from divvy.engine.kubernetes.annotations import timeout_of
from divvy.engine.kubernetes.compare import (
    drifted_paths,
    normalised,
    object_changes,
    projected,
    replacing_paths,
)
from divvy.engine.kubernetes.ready import (
    not_stable,
    readiness,
    selector_text,
    terminal_failure,
)
from divvy.engine.plan_step import Step, plan_step
from divvy.engine.property_path import changed_paths, mapped, parse, restored
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


def test_names_the_chain_of_types_in_a_urn() -> None:
    stack = make_urn("dev", "p", "", "pulumi:pulumi:Stack", "p-dev")
    parent = make_urn("dev", "p", stack, "divvy:index:GpuCluster", "c")
    child = make_urn("dev", "p", parent, TYPE, "cm")
    assert child == f"urn:pulumi:dev::p::divvy:index:GpuCluster${TYPE}::cm"
    assert (urn_type(child), urn_name(child)) == (TYPE, "cm")


@pytest.mark.parametrize(
    ("before", "diff", "more", "expected"),
    [
        (None, Diff(), {}, Step("create")),
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
            Diff(("data.a",), ("data.a",)),
            {"delete_before_replace": True},
            Step("replace", ("data.a",), ("data.a",), before=True),
        ),
    ],
)
def test_derives_the_step_from_state_and_goal(
    before: ResourceState | None, diff: Diff, more: dict[str, Any], expected: Step
) -> None:
    assert plan_step(goal(**more), before, diff) == expected


def test_updates_on_drift_alone() -> None:
    assert plan_step(goal(), old(), Diff(), ("data.a",)) == Step("update", ("data.a",))


def test_refuses_to_replace_a_protected_resource() -> None:
    with pytest.raises(StepFailed, match="protected"):
        plan_step(goal(), old(protect=True), Diff(("kind",), ("kind",)))


def test_names_the_deepest_difference_in_changed_paths() -> None:
    old = {"spec": {"template": {"containers": [{"image": "a"}]}, "gone": 1}}
    other = {"spec": {"template": {"containers": [{"image": "b"}]}, "new": 2}}
    assert list(changed_paths(old, other)) == [
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
def test_replaces_what_cannot_change_in_place(
    kind: str, path: str, mutable: bool, replaces: bool
) -> None:
    obj = {"kind": kind}
    paths = replacing_paths(obj, obj, (path,), config_map=mutable, secret=False)
    assert bool(paths) is replaces


def test_distinguishes_normalised_values_from_edits() -> None:
    inputs = {"spec": {"cpu": "1000m", "list": [{"a": 1}]}}
    recorded = {"spec": {"cpu": "1", "list": [{"a": 1, "b": 2}], "added": True}}
    assert list(drifted_paths(inputs, recorded, recorded)) == []
    edited = {"spec": {"cpu": "2", "list": [{"a": 1, "b": 3}], "added": False}}
    assert list(drifted_paths(inputs, recorded, edited)) == ["spec.cpu"]


def test_refreshes_live_values_at_the_programs_paths() -> None:
    inputs = {"a": 1, "b": {"c": 2, "cpu": "1000m"}}
    was = {"a": 1, "b": {"c": 2, "cpu": "1"}}
    live = {"a": 5, "b": {"c": 6, "cpu": "1", "d": 7}}
    assert projected(inputs, was, live) == {"a": 5, "b": {"c": 6, "cpu": "1000m"}}


def test_keeps_the_old_value_at_ignored_paths() -> None:
    new, before = {"spec": {"replicas": 1, "x": 2}}, {"spec": {"replicas": 5}}
    assert restored(new, ("spec.replicas",), before) == {"spec": {"replicas": 5, "x": 2}}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("data.x", ("data", "x")),
        ('data["x"]', ("data", "x")),
        ('metadata.annotations["a.b/c"]', ("metadata", "annotations", "a.b/c")),
        ("spec.containers[0].image", ("spec", "containers", 0, "image")),
        ("spec.containers[*].image", ("spec", "containers", "*", "image")),
        ("*", ("*",)),
    ],
)
def test_reads_property_paths_as_pulumi_does(text: str, path: tuple[str | int, ...]) -> None:
    assert parse(text) == path


@pytest.mark.parametrize("text", ["", "data[x", "data.", "a]b", ".a", "a..b"])
def test_refuses_an_unreadable_path(text: str) -> None:
    with pytest.raises(ValueError, match="property path"):
        parse(text)


def test_ignores_paths_into_lists_quoted_keys_and_wildcards() -> None:
    new = {"m": {"a.b/c": "new", "d": 1}, "list": [{"i": "x", "n": 1}, {"i": "y", "n": 2}]}
    old = {"m": {"a.b/c": "old"}, "list": [{"i": "1", "n": 7}, {"i": "2", "n": 8}]}
    assert restored(new, ('m["a.b/c"]', "list[*].i"), old) == {
        "m": {"a.b/c": "old", "d": 1},
        "list": [{"i": "1", "n": 1}, {"i": "2", "n": 2}],
    }
    assert restored({"a": {}}, ("a.b", "c.d"), {"a": {"b": 1}}) == {"a": {"b": 1}}
    assert restored({"a": {"b": 1}}, ("a.b",), {}) == {"a": {}}


def test_quotes_changed_keys_with_dots() -> None:
    assert list(changed_paths({"data": {"a.b": 1}}, {"data": {"a.b": 2}})) == ['data["a.b"]']


def test_compares_quantities_as_quantities() -> None:
    def pod(cpu: Any, memory: str) -> dict[str, Any]:
        return {"spec": {"resources": {"requests": {"cpu": cpu, "memory": memory}}}}

    assert object_changes(pod("10m", "1Mi"), pod("0.010", "1024Ki")) == ()
    assert object_changes(pod(1, "1Gi"), pod("1000m", "1G")) == ("spec.resources.requests.memory",)
    assert object_changes({"data": {"a": "1"}}, {"data": {"a": "1000m"}}) == ("data.a",)


def test_merges_a_secrets_string_data_into_its_data() -> None:
    secret = normalised({"kind": "Secret", "data": {"a": "eA=="}, "stringData": {"b": "x"}})
    assert secret == {"kind": "Secret", "data": {"a": "eA==", "b": "eA=="}}
    assert normalised({"kind": "Secret", "stringData": {"b": UNKNOWN}})["data"] == {"b": UNKNOWN}


def test_takes_null_in_string_data_for_an_empty_text() -> None:
    inputs = {"kind": "Secret", "stringData": {"password": None}}
    assert normalised(inputs)["data"] == {"password": ""}


def test_takes_empty_labels_and_annotations_for_none() -> None:
    named = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    for empty in ({"labels": {}}, {"annotations": {}}, {"labels": {}, "annotations": {}}):
        assert normalised({**named, "metadata": {"name": "a", **empty}}) == named
    labelled = {**named, "metadata": {"name": "a", "labels": {"x": ""}}}
    assert normalised(labelled) == labelled


def test_maps_only_what_a_pattern_names() -> None:
    value = {"data": {"a": 1}, "m": {"x": 1}}
    assert mapped(value, "data", str) == {"data": "{'a': 1}", "m": {"x": 1}}
    assert mapped(value, "m.y", str) == value


def test_finds_secrets_and_unknowns_at_any_depth() -> None:
    value = {"a": [secret({"b": "hush"})], "c": UNKNOWN}
    assert has_unknown(value)
    assert masked(value)["a"] == ["[secret]"]
    assert unwrapped(value)["a"] == [{"b": "hush"}]


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("10m0s", 600)]
)
def test_reads_go_durations(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "5m", [5]])
def test_refuses_a_timeout_that_never_ends(text: object) -> None:
    with pytest.raises(NotSupported, match="write a number of seconds"):
        timeout_of({"pulumi.com/timeoutSeconds": text}, 600)


def test_reads_a_timeout() -> None:
    assert timeout_of({"pulumi.com/timeoutSeconds": "90"}, 600) == 90
    assert timeout_of({"pulumi.com/timeoutSeconds": UNKNOWN}, 600) == 600


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


def test_waits_until_pods_have_been_ready_for_as_long_as_the_workload_asks() -> None:
    rolled_out = deployment(replicas=1, updatedReplicas=1, readyReplicas=1)
    rolled_out["spec"]["minReadySeconds"] = 30
    assert readiness(rolled_out) == "0 of 1 pods are ready for 30 s"
    rolled_out["status"]["availableReplicas"] = 1
    assert readiness(rolled_out) is None
    everywhere = daemon_set(updatedNumberScheduled=3, numberReady=3, numberAvailable=2)
    everywhere["spec"]["minReadySeconds"] = 30
    assert readiness(everywhere) == "2 of 3 pods are ready for 30 s"


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
