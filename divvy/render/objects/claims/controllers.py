"""The controllers beside the agents, and what each may do."""

from __future__ import annotations

from divvy.model.api_names import TEMPLATE_MAKER, Component
from divvy.render.objects.claims.controller import Controller

# A second one would do no harm and be of no use: a template is there once.
TEMPLATE_MAKER_CONTROLLER = Controller(
    name=TEMPLATE_MAKER,
    component=Component.CLAIMS,
    module="divvy.claim_templates",
    rules=(
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        # What waits because its namespace has too much in work is told there.
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
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
