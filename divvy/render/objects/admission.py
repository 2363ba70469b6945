"""The admission policy that holds each agent to its own node and to the keys it owns.

RBAC cannot say "your own node". The token of a pod carries the node's name
(authentication.kubernetes.io/node-name, stable since Kubernetes 1.32).
"""

from __future__ import annotations

from typing import Any

from divvy.model.api_names import OWNED_ANNOTATIONS, OWNED_LABELS, Component
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.policy import validating_policy

_OWN_NODE = (
    "'authentication.kubernetes.io/node-name' in request.userInfo.extra && "
    "request.userInfo.extra['authentication.kubernetes.io/node-name'][0] == object.metadata.name"
)
_OWNED_ANNOTATION = " || ".join(f"k == '{key}'" for key in OWNED_ANNOTATIONS)
# Deleted with an owner, held by a finalizer: both would be a right over the node's life.
_FENCED_LISTS = ("finalizers", "ownerReferences")


def admission_policy(namespace: str, account: str) -> list[dict[str, Any]]:
    """Return the policy and its binding."""
    user = f"system:serviceaccount:{namespace}:{account}"
    return validating_policy(
        f"{namespace}-{account}",
        match_constraints("", "nodes", operations=["UPDATE"]),
        [
            (_OWN_NODE, "a divvy agent may change its own node only"),
            (
                _only_owned("Labels", f"k.matches('{OWNED_LABELS}')"),
                "a divvy agent may change its feature labels only",
            ),
            (
                _only_owned("Annotations", f"({_OWNED_ANNOTATION})"),
                "a divvy agent may change its status annotation only",
            ),
            ("object.spec == oldObject.spec", "a divvy agent may not change a node's spec"),
            (
                " && ".join(map(_same_list, _FENCED_LISTS)),
                "a divvy agent may not change a node's finalizers or owners",
            ),
        ],
        conditions={"agent": f"request.userInfo.username == '{user}'"},
        variables={
            "newLabels": _map("object", "labels"),
            "oldLabels": _map("oldObject", "labels"),
            "newAnnotations": _map("object", "annotations"),
            "oldAnnotations": _map("oldObject", "annotations"),
        },
        component=Component.AGENT,
        words="message",
    )


def _map(source: str, field: str) -> str:
    path = f"{source}.metadata.{field}"
    return f"has({path}) ? {path} : {{}}"


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
