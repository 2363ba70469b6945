"""Roles, each with its binding to the account that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

_GROUP = "rbac.authorization.k8s.io"


def role(
    kind: Literal["Role", "ClusterRole"],
    account: str,
    namespace: str,
    labels: Mapping[str, str],
    rules: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the rights of an account, in its namespace or in the cluster, and their binding."""
    metadata: dict[str, Any] = {"name": account, "namespace": namespace, "labels": labels}
    if kind == "ClusterRole":
        metadata = {"name": f"{namespace}-{account}", "labels": labels}
    api = f"{_GROUP}/v1"
    return [
        {"apiVersion": api, "kind": kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]
