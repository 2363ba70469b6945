"""The objects of a cluster with claims beside its agents, in the order of creation."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.render.objects.claims.claimable import claimable
from divvy.render.objects.claims.device_classes import device_classes
from divvy.render.objects.claims.refusals import claims_policy, refusal_policies
from divvy.render.objects.claims.share_quota import share_quota_policies
from divvy.render.objects.claims.sized_limits import sized_limits_policy
from divvy.render.objects.claims.template_maker import template_maker
from divvy.render.objects.claims.warnings import warning_policy


def claim_objects(cluster: Cluster, image: Any) -> list[dict[str, Any]]:
    """Return the objects, none if no profile has claims.

    The policies over pods are there where pods can ask by size, which only shares can serve.
    """
    offered = claimable(cluster)
    if not offered.any:
        return []
    classes = device_classes(cluster, offered)
    if not offered.shares:
        return [*classes, *claims_policy(cluster, offered)]
    return [
        *classes,
        # What refuses, and what makes templates, before what lets pods ask.
        *refusal_policies(cluster, offered),
        *share_quota_policies(cluster),
        *template_maker(cluster, image),
        *warning_policy(cluster),
        *sized_limits_policy(cluster, offered),
    ]
