"""The admission policy that holds each agent to its own node and to the keys it owns.

RBAC cannot say "your own node". The token of a pod carries the node's name
(authentication.kubernetes.io/node-name, stable since Kubernetes 1.32).
"""

from __future__ import annotations

from typing import Any

_OWN_NODE = (
    "'authentication.kubernetes.io/node-name' in request.userInfo.extra && "
    "request.userInfo.extra['authentication.kubernetes.io/node-name'][0] == object.metadata.name"
)
_LABELS = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "agent"}
_OWNED_LABELS = "(nvidia[.]com/(gpu|cuda|mig)[.-].*|nvidia[.]com/(gpu|mig)-.*)"


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
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": ["nodes"],
                        }
                    ]
                },
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
                        "expression": _only_owned("Labels", f"k.matches('^{_OWNED_LABELS}$')"),
                        "message": "a divvy agent may change feature labels only",
                    },
                    {
                        "expression": _only_owned("Annotations", "k.startsWith('divvy.gpu/')"),
                        "message": "a divvy agent may change divvy.gpu/ annotations only",
                    },
                    {
                        "expression": "object.spec == oldObject.spec",
                        "message": "a divvy agent may not change a node's spec",
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
