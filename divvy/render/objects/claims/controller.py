"""A controller of Divvy's: its account, its rights, its Deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import METRICS_PORT, Component, component_labels
from divvy.model.platform_checks import ARCHITECTURE_LABEL
from divvy.render.objects.agent_pod import pool_tolerations

# The keys of taints by which Kubernetes says how a node is.
NODE_STATE = r"^node\.(cloudprovider\.)?kubernetes\.io/"
GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Controller:
    """One controller: what it is called, what it runs and what it may do in the cluster."""

    name: str
    component: Component
    module: str
    rules: Sequence[Mapping[str, Any]]
    readiness: bool = False
    metrics: bool = False


def controller_objects(
    controller: Controller, cluster: Cluster, image: Any
) -> list[dict[str, Any]]:
    """Return its account, its rights and its Deployment."""
    labels = component_labels(controller.component)
    own = {"name": controller.name, "namespace": cluster.namespace, "labels": labels}
    wide = {"name": f"{cluster.namespace}-{controller.name}", "labels": labels}
    subject = {
        "kind": "ServiceAccount",
        "name": controller.name,
        "namespace": cluster.namespace,
    }
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
    template = {
        "metadata": {
            "labels": labels,
            **({"annotations": annotations} if controller.metrics else {}),
        },
        "spec": _pod(controller, cluster, image),
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own},
        *_rights("ClusterRole", wide, controller.rules, subject),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": own,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        },
    ]


def _rights(
    kind: str,
    metadata: Mapping[str, Any],
    rules: Sequence[Mapping[str, Any]],
    subject: Mapping[str, Any],
) -> list[dict[str, Any]]:
    reference = {"apiGroup": GROUP, "kind": kind, "name": metadata["name"]}
    role = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
    return [
        {**role, "rules": list(rules)},
        {**role, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]},
    ]


def _pod(controller: Controller, cluster: Cluster, image: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": controller.name,
        # Pods wait while it is away.
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(controller, image)],
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
        for toleration in pool_tolerations(cluster)
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


def _container(controller: Controller, image: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": controller.name.removeprefix("divvy-"),
        "image": image,
        "command": ["/usr/bin/python3", "-m", controller.module],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
    }
    if controller.readiness:
        container["readinessProbe"] = {
            "httpGet": {"path": "/readyz", "port": "metrics"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
        }
    return container | {
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
