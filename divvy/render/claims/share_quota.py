"""The policies that refuse shares in namespaces whose quota for them nobody has confirmed.

A policy cannot ask whether a namespace has a ResourceQuota: one with ResourceQuotas as parameters
refuses every pod of a namespace that has none, before it looks at what the pod asks for. So the
administrator labels namespaces, and `divvy validate --live` compares labels with quotas.
"""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.claim_names import SHARE_CLASS
from divvy.model.contract import CLASS_QUOTA, SHARE_QUOTA_LABEL, TEMPLATE_PREFIX
from divvy.model.resource_names import gpu_resource
from divvy.render.claims.cel import line, text
from divvy.render.claims.policy import on_create, validating_policy

NAME = "divvy-share-quota"
# The scheduler reads requests, and takes those of a class without limits, too.
_ASKED = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"


def share_quota_policies(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the policies for pods and for claims, none where a quota is optional."""
    if cluster.quota.shares != "required":
        return []
    shared = text(gpu_resource(shared=True))
    of_share = text(f"^{TEMPLATE_PREFIX}[0-9]+x[0-9]+[mp]")
    pods = line(
        "object.spec.?resourceClaims.orValue([]).exists(r, "
        f"r.?resourceClaimTemplateName.orValue('').matches({of_share})) || "
        "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, "
        f"{_ASKED}.exists(l, {shared} in l))"
    )
    share_class = text(SHARE_CLASS)
    claims = line(
        "object.spec.?devices.?requests.orValue([]).exists(r, "
        f"r.?exactly.?deviceClassName.orValue('').startsWith({share_class}) || "
        f"r.?firstAvailable.orValue([]).exists(s, s.deviceClassName.startsWith({share_class})))"
    )
    labelled = f"namespaceObject.metadata.?labels[?{text(SHARE_QUOTA_LABEL)}].orValue('') == 'true'"
    message = (
        "'shares of GPUs need a quota: limit "
        f"{SHARE_CLASS}{CLASS_QUOTA} in a ResourceQuota of the namespace ' + "
        "namespaceObject.metadata.name + "
        + text(f", then label the namespace {SHARE_QUOTA_LABEL}: true")
    )
    return [
        obj
        for name, rule, asks in (
            (f"{NAME}-pods", on_create("", "pods"), pods),
            (f"{NAME}-claims", on_create("resource.k8s.io", "resourceclaims"), claims),
        )
        for obj in validating_policy(
            name, rule, [{"name": "asks-for-shares", "expression": asks}], [], [(labelled, message)]
        )
    ]
