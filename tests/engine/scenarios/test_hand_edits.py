"""What others change on an object: hand edits are repaired, other managers' fields are theirs."""

from __future__ import annotations

import json

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial

SERVICE = """k8s.core.v1.Service("s", metadata={"name": "s"},
  spec={"ports": [{"port": 80, "name": "one"}], "selector": {"a": "b"}})
"""
DEPLOYMENT = """k8s.apps.v1.Deployment("d", metadata={"name": "d", "labels": {"l": E("L", "1")},
    "annotations": {"pulumi.com/skipAwait": "true"}},
  spec={"replicas": 1, "selector": {"match_labels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
                     "spec": {"containers": [{"name": "c", "image": "i:1"}]}}})
"""
MUTABLE = """O = R(provider=k8s.Provider("p", enable_config_map_mutable=True))
cm("a", metadata={"name": "a", "labels": {"l": E("L", "1")}}, data={"x": "1"}, opts=O)
"""


def edit(trial: Trial, kind: str, name: str, patch: object, manager: str) -> None:
    trial.cluster.kubectl(
        *("patch", kind, name, f"--namespace={trial.namespace}"),
        *(f"--patch={json.dumps(patch)}", "--type=merge", f"--field-manager={manager}"),
    )


def read(trial: Trial, kind: str, name: str) -> dict[str, object]:
    live: dict[str, object] = trial.cluster.get(kind, name, f"--namespace={trial.namespace}")
    return live


@pytest.mark.parametrize("refreshed", [False, True])
@scenario(
    "A field edited with `kubectl edit`, `patch` or `apply`, with and without a `refresh`",
    "with the next change, or `--refresh`: overwritten",
    "other",
    "`preview` shows it, `up` repairs it and prints what it takes over",
)
def test_repairs_what_kubectl_has_edited(trial: Trial, refreshed: bool) -> None:
    trial.write(MUTABLE)
    trial.up()
    edit(trial, "configmap", "a", {"data": {"x": "edited", "more": "1"}}, "kubectl-edit")
    if refreshed:
        trial.refresh(expect=2)
    trial.preview(expect=2)
    assert "takes .data.x over from kubectl" in trial.up(L="2")
    assert read(trial, "configmap", "a")["data"] == {"x": "1"}
    assert "unchanged" in trial.up(L="2")


@pytest.mark.lab
def test_repairs_a_list_that_kubectl_has_edited(trial: Trial) -> None:
    trial.write(SERVICE)
    trial.up()
    port = {"port": 8080, "name": "one"}
    edit(trial, "service", "s", {"spec": {"ports": [port]}}, "kubectl-edit")
    trial.preview(expect=2)
    trial.up()
    spec = read(trial, "service", "s")["spec"]
    assert isinstance(spec, dict)
    assert [port["port"] for port in spec["ports"]] == [80]
    trial.preview(expect=0)


@pytest.mark.lab
def test_removes_the_list_entry_that_kubectl_has_added(trial: Trial) -> None:
    trial.write(SERVICE)
    trial.up()
    added = json.dumps([{"op": "add", "path": "/spec/ports/-", "value": {"name": "x", "port": 8}}])
    trial.cluster.kubectl(
        *("patch", "service", "s", f"--namespace={trial.namespace}", "--type=json"),
        *(f"--patch={added}", "--field-manager=kubectl-edit"),
    )
    trial.preview(expect=2)
    assert "takes spec.ports over from kubectl" in trial.up()
    spec = read(trial, "service", "s")["spec"]
    assert isinstance(spec, dict)
    assert [port["port"] for port in spec["ports"]] == [80]
    trial.preview(expect=0)


@pytest.mark.lab
def test_repairs_what_kubectl_has_scaled(trial: Trial) -> None:
    trial.write(DEPLOYMENT)
    trial.up()
    place = f"--namespace={trial.namespace}"
    trial.cluster.kubectl("scale", "deployment", "d", place, "--replicas=4")
    trial.up(L="2")
    spec = read(trial, "deployment", "d")["spec"]
    assert isinstance(spec, dict)
    assert spec["replicas"] == 1


@scenario("A label of someone else, a restart by `kubectl rollout`", "left alone", "equal")
def test_leaves_alone_what_the_program_does_not_set(trial: Trial) -> None:
    trial.write(DEPLOYMENT)
    trial.up()
    place = f"--namespace={trial.namespace}"
    trial.cluster.kubectl("label", "deployment", "d", place, "owner=ops")
    trial.cluster.kubectl("rollout", "restart", "deployment/d", place)
    assert "unchanged" in trial.up()
    trial.cluster.kubectl("scale", "deployment", "d", place, "--replicas=4")
    trial.up(L="2")
    text = json.dumps(read(trial, "deployment", "d"))
    assert '"owner": "ops"' in text
    assert "restartedAt" in text


@scenario(
    "A field that another manager owns",
    "fails with the manager's name",
    "equal",
)
def test_leaves_fields_to_other_managers_and_suggests_a_remedy(trial: Trial) -> None:
    trial.write(MUTABLE)
    trial.up()
    edit(trial, "configmap", "a", {"data": {"x": "theirs"}}, "argocd")
    for output in (trial.preview(expect=1), trial.up(expect=1)):
        assert ".data.x (argocd)" in output
        assert "delete the object and run again: it will be recreated" in output
    assert read(trial, "configmap", "a")["data"] == {"x": "theirs"}
    trial.cluster.kubectl("delete", "configmap", "a", f"--namespace={trial.namespace}")
    trial.up()
    assert read(trial, "configmap", "a")["data"] == {"x": "1"}


@scenario("A ClusterRole that aggregates others, with `rules: []`", "not a change", "equal")
def test_reports_no_drift_for_rules_that_a_controller_fills_in(trial: Trial) -> None:
    trial.write(
        'k8s.rbac.v1.ClusterRole("r", metadata={"name": E("NS"), "labels": {"l": E("L", "1")}},\n'
        "  aggregation_rule={'cluster_role_selectors': [{'match_labels': {'a': 'b'}}]}, rules=[])\n"
    )
    trial.environment["NS"] = trial.namespace
    trial.up()
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    patch = json.dumps({"rules": rules})
    # As the aggregation controller does.
    trial.cluster.kubectl(
        "patch", "clusterrole", trial.namespace, "--type=merge", f"--patch={patch}",
        "--field-manager=clusterrole-aggregation-controller",
    )  # fmt: skip
    trial.preview(expect=0)
    trial.up(L="2")
    assert trial.cluster.get("clusterrole", trial.namespace)["rules"] == rules
    trial.destroy()


@pytest.mark.lab
def test_reports_no_drift_for_an_empty_map_that_a_controller_fills_in(trial: Trial) -> None:
    trial.write('cm("a", metadata={"name": "a"}, data={})\n')
    trial.up()
    edit(trial, "configmap", "a", {"data": {"x": "1"}}, "controller")
    trial.preview(expect=0)


@pytest.mark.lab
def test_suggests_no_replacement_for_a_refusal_of_a_mutable_field(trial: Trial) -> None:
    trial.write(SERVICE.replace('"port": 80,', '"port": int(E("P", "80")),'))
    trial.up()
    for output in (trial.preview(P="99999", expect=1), trial.up(P="99999", expect=1)):
        assert "99999" in output
        assert "replace" not in output
        assert "recreated" not in output


@pytest.mark.lab
def test_explains_how_to_replace_an_immutable_field(trial: Trial) -> None:
    trial.write(
        'k8s.core.v1.ResourceQuota("q", metadata={"name": "q"}, spec={"hard": {"pods": "1"},\n'
        '  "scopes": [E("S")]})\n'
        'k8s.apps.v1.DaemonSet("d", metadata={"name": "d", "annotations":\n'
        '    {"pulumi.com/skipAwait": "true"}}, spec={"selector": {"match_labels": {"a": "b"}},\n'
        '  "template": {"metadata": {"labels": {"a": "b"}},\n'
        '               "spec": {"containers": [{"name": "c", "image": "i:1"}]}}})\n'
    )
    trial.up(S="BestEffort")
    uid = trial.uid("q", "resourcequota")
    assert "1 to replace" in trial.preview(S="NotBestEffort", expect=2)
    trial.up(S="NotBestEffort")
    assert trial.uid("q", "resourcequota") not in (uid, None)
