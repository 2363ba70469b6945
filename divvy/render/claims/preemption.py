"""The controller that preempts, and what it may do."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.contract import CONFIG_MAP, PREEMPTION, Component
from divvy.render.claims.controller import Controller, controller_objects

_CONTROLLER = Controller(
    name=PREEMPTION,
    component=Component.PREEMPTION,
    module="divvy.preemption",
    rules=(
        {"apiGroups": [""], "resources": ["nodes", "pods", "resourcequotas"], "verbs": ["list"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["devicetaintrules", "resourceclaims", "resourceslices"],
            "verbs": ["list"],
        },
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/eviction", "events"], "verbs": ["create"]},
    ),
    memory="1Gi",
    in_namespace=(
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [CONFIG_MAP],
            "verbs": ["get"],
        },
    ),
)


def preemption_objects(cluster: Cluster, image: Any) -> list[dict[str, Any]]:
    """Return its account, its rights and its Deployment, nothing if it is off."""
    return controller_objects(_CONTROLLER, cluster, image) if cluster.preemption else []
