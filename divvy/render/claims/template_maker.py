"""The Deployment of the template maker, and what it may do."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.contract import (
    METRICS_PORT,
    TEMPLATE_MAKER,
    Component,
    component_labels,
)

_GROUP = "rbac.authorization.k8s.io"
_LABELS = component_labels(Component.CLAIMS)
_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaimtemplates"],
        "verbs": ["get", "list", "watch", "create", "delete"],
    },
]


def template_maker(cluster: Cluster, image: Any) -> list[dict[str, Any]]:
    """Return its account, its rights and its Deployment."""
    name = f"{cluster.namespace}-{TEMPLATE_MAKER}"
    subject = {
        "kind": "ServiceAccount",
        "name": TEMPLATE_MAKER,
        "namespace": cluster.namespace,
    }
    own = {"name": TEMPLATE_MAKER, "namespace": cluster.namespace, "labels": _LABELS}
    wide = {"name": name, "labels": _LABELS}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own},
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": wide,
            "rules": _RULES,
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": wide,
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": own,
            "spec": {
                # A second one would do no harm and be of no use: a template is there once.
                "replicas": 1,
                "selector": {"matchLabels": _LABELS},
                "template": {
                    "metadata": {
                        "labels": _LABELS,
                        "annotations": {
                            "prometheus.io/scrape": "true",
                            "prometheus.io/port": str(METRICS_PORT),
                        },
                    },
                    "spec": _pod(cluster, image),
                },
            },
        },
    ]


def _pod(cluster: Cluster, image: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": TEMPLATE_MAKER,
        # Pods that ask by size wait while it is away.
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(image)],
    }
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in cluster.image_pull_secrets]
    return pod


def _container(image: Any) -> dict[str, Any]:
    return {
        "name": "claim-templates",
        "image": image,
        "command": ["/usr/bin/python3", "-m", "divvy.claim_templates"],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "metrics"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "resources": {
            "requests": {"cpu": "10m", "memory": "60Mi"},
            "limits": {"memory": "300Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
