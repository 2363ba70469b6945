"""The Kubernetes objects of a cluster: the one source for program, chart and manifests."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster, ClusterDocument, canonical_json, generation
from divvy.model.api_names import (
    AGENT,
    CONFIG_KEY,
    CONFIG_MAP,
    METRICS_PORT,
    Component,
    component_labels,
)
from divvy.render.objects.admission import admission_policy
from divvy.render.objects.agent_pod import agent_daemon_set
from divvy.render.objects.claims import claim_objects
from divvy.render.objects.claims.slice_policy import slice_policy
from divvy.render.objects.node_runtime import node_runtime_objects
from divvy.render.objects.observability import observability_objects
from divvy.render.objects.roles import role

_AGENT_LABELS = component_labels(Component.AGENT)
# The driver of claims: it reads what the scheduler has allocated, and says what there is.
_CLAIM_RULES = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims"],
        "verbs": ["get", "list"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "update", "delete"],
    },
]


def configuration_of(document: ClusterDocument) -> str:
    """Return what agents read of a stack: the same text, whatever deploys it.

    The namespace is written out, as that of a Helm release is.
    """
    return canonical_json({**document.value, "namespace": document.cluster.namespace})


def objects(document: ClusterDocument, image: Any) -> list[dict[str, Any]]:
    """Return every object for a cluster, in the order in which they can be created.

    ``image`` is placed as it is: a reference by digest, or a value that is only
    known later.
    """
    cluster = document.cluster
    configuration = configuration_of(document)
    return [
        _namespace(cluster),
        _service_account(cluster),
        *_roles(cluster),
        *admission_policy(cluster.namespace, AGENT),
        *(slice_policy(cluster.namespace) if cluster.claims else ()),
        _config_map(cluster, configuration),
        *node_runtime_objects(cluster, image),
        agent_daemon_set(cluster, image),
        _service(cluster),
        *claim_objects(cluster, image),
        *observability_objects(cluster, generation(configuration)),
    ]


def _namespace(cluster: Cluster) -> dict[str, Any]:
    # The agent changes GPUs and writes below the kubelet's folder: no lesser level admits it.
    level = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": cluster.namespace,
            "labels": {**component_labels(Component.NAMESPACE), **level},
        },
    }


def _service_account(cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(AGENT, cluster, Component.AGENT),
    }


def _roles(cluster: Cluster) -> list[dict[str, Any]]:
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    if cluster.change.policy == "evict":
        rules.append({"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]})
    if cluster.claims:
        rules += _CLAIM_RULES
    agent = (AGENT, cluster.namespace, _AGENT_LABELS)
    config_rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [CONFIG_MAP],
        "verbs": ["get", "list", "watch"],
    }
    return [
        *role("ClusterRole", *agent, rules),
        *role("Role", *agent, [config_rule]),
    ]


def _config_map(cluster: Cluster, configuration: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(CONFIG_MAP, cluster, Component.CONFIGURATION),
        "data": {CONFIG_KEY: configuration},
    }


def _service(cluster: Cluster) -> dict[str, Any]:
    # A port's protocol is part of its key: Argo CD's diff on the server sees one without it twice.
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(AGENT, cluster, Component.AGENT),
        "spec": {
            "clusterIP": "None",
            "selector": _AGENT_LABELS,
            "ports": [
                {
                    "name": "metrics",
                    "port": METRICS_PORT,
                    "targetPort": "metrics",
                    "protocol": "TCP",
                }
            ],
        },
    }


def _metadata(name: str, cluster: Cluster, component: Component) -> dict[str, Any]:
    labels = component_labels(component)
    return {"name": name, "namespace": cluster.namespace, "labels": labels}
