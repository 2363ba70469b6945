"""The template maker, and what it may do."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.contract import TEMPLATE_MAKER, Component
from divvy.render.claims.controller import Controller, controller_objects

# A second one would do no harm and be of no use: a template is there once.
_CONTROLLER = Controller(
    name=TEMPLATE_MAKER,
    component=Component.CLAIMS,
    module="divvy.claim_templates",
    rules=(
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
    ),
    readiness=True,
    metrics=True,
)


def template_maker(cluster: Cluster, image: Any) -> list[dict[str, Any]]:
    """Return its account, its rights and its Deployment."""
    return controller_objects(_CONTROLLER, cluster, image)
