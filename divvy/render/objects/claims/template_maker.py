"""The template maker: its account, its rights, its Deployment."""

from __future__ import annotations

import re
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import METRICS_PORT, TEMPLATE_MAKER, Component, component_labels
from divvy.model.platform_checks import ARCHITECTURE_LABEL
from divvy.model.stack import tolerations_of
from divvy.render.objects.probes import probes
from divvy.render.objects.roles import role

# The keys of taints by which Kubernetes says how a node is.
NODE_STATE = r"^node\.(cloudprovider\.)?kubernetes\.io/"
_RULES: tuple[dict[str, Any], ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    # What waits because its namespace has too much in work is told there.
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaimtemplates"],
        "verbs": ["get", "list", "watch", "create", "delete"],
    },
)


def template_maker(cluster: Cluster, image: Any) -> list[dict[str, Any]]:
    """Return its account, its rights and its Deployment.

    A second pod would do no harm and be of no use: a template is there once.
    """
    labels = component_labels(Component.CLAIMS)
    own = {"name": TEMPLATE_MAKER, "namespace": cluster.namespace, "labels": labels}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": _pod(cluster, image),
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own},
        *role("ClusterRole", TEMPLATE_MAKER, cluster.namespace, labels, _RULES),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": own,
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
    ]


def _pod(cluster: Cluster, image: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": TEMPLATE_MAKER,
        # Pods wait while it is away.
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
    if tolerations := _tolerations(cluster):
        pod["tolerations"] = tolerations
    if affinity := controller_affinity(cluster):
        pod["affinity"] = affinity
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in cluster.image_pull_secrets]
    return pod


def _tolerations(cluster: Cluster) -> list[dict[str, Any]]:
    """Return those of the pools' own taints, whose nodes may be all that there are.

    Nodes that are dead or cordoned have taints, too: a controller has to leave these.
    """
    return [
        toleration
        for toleration in tolerations_of(pool for _, pool in sorted(cluster.pools.items()))
        if "key" in toleration and not re.match(NODE_STATE, toleration["key"])
    ]


def controller_affinity(cluster: Cluster) -> dict[str, Any]:
    """Return an affinity to the nodes that the image is for, if the stack file says which."""
    image = cluster.plugin.image
    if image is None or image.registry is None:
        return {}
    architectures = sorted(platform.partition("/")[2] for platform in image.platforms)
    term = {"key": ARCHITECTURE_LABEL, "operator": "In", "values": architectures}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _container(image: Any) -> dict[str, Any]:
    return {
        "name": TEMPLATE_MAKER.removeprefix("divvy-"),
        "image": image,
        "command": ["/usr/bin/python3", "-m", "divvy.claim_templates"],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        **probes(),
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
