"""What a deployment would change, from objects as they are and as they would be."""

from __future__ import annotations

from typing import Any

from divvy.deploy.changes import (
    ABSENT,
    Action,
    Change,
    FieldChange,
    ObjectName,
    Release,
    as_released,
    field_changes,
    owner,
    removed,
    update_of,
)

RELEASE = Release("divvy", "n")


def config(data: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "n", **metadata},
        "data": data,
    }


def test_names_the_deepest_fields_that_differ() -> None:
    before = {"a": {"b": [1, {"c": 2}]}, "gone": 1, "list": [1]}
    after = {"a": {"b": [1, {"c": 3}]}, "new": None, "list": [1, 2]}
    assert list(field_changes(before, after)) == [
        FieldChange("a.b[1].c", 2, 3),
        FieldChange("gone", 1, ABSENT),
        FieldChange("list", [1], [1, 2]),
        FieldChange("new", ABSENT, None),
    ]


def test_leaves_out_what_the_api_server_alone_writes() -> None:
    live = {**config({}, resourceVersion="1", generation=1), "status": {"ready": 1}}
    live["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "1"}
    applied = {**config({}, resourceVersion="2", generation=2), "status": {"ready": 0}}
    applied["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
    assert update_of(live, applied, {}) is None
    change = update_of(live, config({"a": "b"}), {"f": "kubectl-edit", "g": "tuner"})
    assert change is not None
    assert change.action is Action.UPDATE
    assert change.conflicts == {"g": "tuner"}


def test_owns_what_helm_has_marked_for_this_release_alone() -> None:
    obj = as_released(config({}), RELEASE)
    assert RELEASE.owns(obj)
    assert not Release("divvy", "other").owns(obj)
    assert not Release("gpus", "n").owns(obj)
    assert not RELEASE.owns(config({}))
    del obj["metadata"]["labels"]
    assert not RELEASE.owns(obj)


def test_removes_what_is_recorded_and_no_longer_desired_once() -> None:
    other = {**config({}), "kind": "Service"}
    # The version that an object was made with is no part of its name.
    newer = {**config({}), "apiVersion": "v2"}
    assert removed([config({}), other, other], [newer]) == [ObjectName("Service", "n", "c", "v1")]


def test_finds_the_path_of_every_kind_that_is_deployed() -> None:
    kinds = {
        "NetworkPolicy": "networkpolicies",
        "DeviceClass": "deviceclasses",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
        "Service": "services",
    }
    for kind, plural in kinds.items():
        assert ObjectName(kind, "", "x", "g/v1").path == f"/apis/g/v1/{plural}/x"
    assert ObjectName("ConfigMap", "n", "x", "v1").path == "/api/v1/namespaces/n/configmaps/x"


def test_leaves_to_pulumi_what_pulumi_applies() -> None:
    released = as_released(config({}), RELEASE)
    assert owner(released) == RELEASE
    fields = [{"manager": "helm"}, {"manager": "pulumi-divvy"}]
    adopted = {**released, "metadata": {**released["metadata"], "managedFields": fields}}
    assert owner(adopted) is None
    managers = {"data": "pulumi-divvy", "spec": "tuner", "metadata": "kubectl-patch"}
    change = Change(Action.UPDATE, ObjectName.of(released), (), managers)
    assert change.conflicts == {"spec": "tuner"}
