"""The admission policy that holds each agent to its own node and to the keys it owns.

RBAC cannot say "your own node". The token of a pod carries the node's name
(authentication.kubernetes.io/node-name, stable since Kubernetes 1.32).
"""

from __future__ import annotations

from typing import Any

from divvy.model.api_names import OWNED_ANNOTATIONS, OWNED_LABELS
from divvy.render.objects.atomic_values import match_constraints

_OWN_NODE = (
    "'authentication.kubernetes.io/node-name' in request.userInfo.extra && "
    "request.userInfo.extra['authentication.kubernetes.io/node-name'][0] == object.metadata.name"
)
_LABELS = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "agent"}
_OWNED_ANNOTATION = " || ".join(f"k == '{key}'" for key in OWNED_ANNOTATIONS)
# Deleted with an owner, held by a finalizer: both would be a right over the node's life.
_FENCED_LISTS = ("finalizers", "ownerReferences")


def admission_policy(namespace: str, account: str) -> list[dict[str, Any]]:
    """Return the policy and its binding."""
    user = f"system:serviceaccount:{namespace}:{account}"
    name = f"{namespace}-{account}"
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": _LABELS},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": match_constraints("", "nodes", operations=["UPDATE"]),
                "matchConditions": [
                    {"name": "agent", "expression": f"request.userInfo.username == '{user}'"}
                ],
                "variables": [
                    _map("newLabels", "object", "labels"),
                    _map("oldLabels", "oldObject", "labels"),
                    _map("newAnnotations", "object", "annotations"),
                    _map("oldAnnotations", "oldObject", "annotations"),
                ],
                "validations": [
                    {
                        "expression": _OWN_NODE,
                        "message": "a divvy agent may change its own node only",
                    },
                    {
                        "expression": _only_owned("Labels", f"k.matches('{OWNED_LABELS}')"),
                        "message": "a divvy agent may change its feature labels only",
                    },
                    {
                        "expression": _only_owned("Annotations", f"({_OWNED_ANNOTATION})"),
                        "message": "a divvy agent may change its status annotation only",
                    },
                    {
                        "expression": "object.spec == oldObject.spec",
                        "message": "a divvy agent may not change a node's spec",
                    },
                    {
                        "expression": " && ".join(map(_same_list, _FENCED_LISTS)),
                        "message": "a divvy agent may not change a node's finalizers or owners",
                    },
                ],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": _LABELS},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _map(name: str, source: str, field: str) -> dict[str, str]:
    path = f"{source}.metadata.{field}"
    return {"name": name, "expression": f"has({path}) ? {path} : {{}}"}


def _only_owned(field: str, owned: str) -> str:
    """Return an expression: keys that are not owned are the same before and after."""
    new, old = f"variables.new{field}", f"variables.old{field}"
    return (
        f"{new}.all(k, {owned} || (k in {old} && {old}[k] == {new}[k])) && "
        f"{old}.all(k, {owned} || k in {new})"
    )


def _same_list(field: str) -> str:
    new, old = (f"{source}.metadata.{field}" for source in ("object", "oldObject"))
    return f"(has({new}) ? {new} : []) == (has({old}) ? {old} : [])"
