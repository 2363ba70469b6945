"""The names of the validating admission policies, and of their bindings, that stacks can have."""

from __future__ import annotations

from divvy.model.api_names import AGENT
from divvy.render.objects.claims import refusals, share_quota, template_names, warnings


def policy_names(namespace: str) -> tuple[str, ...]:
    """Return the names of all of them, for a stack in this namespace."""
    return (
        f"{namespace}-{AGENT}",
        f"{namespace}-{AGENT}-slices",
        refusals.PODS,
        refusals.CLAIMS,
        template_names.NAME,
        warnings.NAME,
        share_quota.PODS,
        share_quota.CLAIMS,
        share_quota.NVIDIAS_CLAIMS,
    )
