"""Which nodes of the API a pod of the API may not go to, and why."""

from typing import Any

import pytest

from divvy.plan.fit.node_selection import Labels, node_selection, repelled, taints_of

POD: dict[str, Any] = {"spec": {"nodeSelector": {"kind": "a100"}}}


def node(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}, "spec": spec}


TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (node({"kind": "a100"}), ""),
        (node({"kind": "t4"}), "has kind=t4, but the pod requires a100"),
        (node({}), "has no label kind=a100, which the pod requires"),
        (node({"kind": "a100"}, unschedulable=True), "is cordoned"),
        (
            node({"kind": "a100"}, taints=[TAINT]),
            "has the taint team=x, which the pod does not tolerate",
        ),
        (node({"kind": "a100"}, taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    ],
)
def test_explains_why_a_node_is_closed_to_a_pod(node: dict[str, Any], reason: str) -> None:
    selection, meta = node_selection(POD["spec"]), node["metadata"]
    suits = selection.suits(Labels(meta.get("labels") or {}, name=meta["name"]))
    assert (suits.problem or repelled(selection, taints_of(node.get("spec") or {}))) == reason


@pytest.mark.parametrize(
    ("operator", "value", "tolerates"),
    [
        ("Equal", "5", True),
        ("Equal", "4", False),
        ("Exists", "", True),
        # As numbers, since Kubernetes 1.35: the taint's is greater, or less.
        ("Gt", "4", True),
        ("Gt", "5", False),
        ("Lt", "6", True),
        ("Lt", "5", False),
        ("Gt", "x", False),
        # Of a release to come: what it means is not equality.
        ("In", "5", False),
    ],
)
def test_compares_the_values_of_taints_by_the_operator(
    operator: str, value: str, tolerates: bool
) -> None:
    toleration = {"key": "level", "operator": operator, "value": value, "effect": "NoSchedule"}
    selection = node_selection({"tolerations": [toleration]})
    taints = taints_of({"taints": [{"key": "level", "value": "5", "effect": "NoSchedule"}]})
    assert (repelled(selection, taints) == "") is tolerates
