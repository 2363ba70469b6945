"""The policies that refuse shares in namespaces without a ResourceQuota for them."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.claim_names import SHARE_CLASS
from divvy.model.contract import SHARE_QUOTA_LABEL, TEMPLATE_PREFIX
from divvy.model.resource_names import gpu_resource
from divvy.render.claims.cel import line, text
from divvy.render.claims.policy import on_create, validating_policy

# With the API server's sentence it reads: … denied request: no params found for policy binding.
NAME = "divvy-shares-need-a-resourcequota"
_CLASS_QUOTA = ".deviceclass.resource.k8s.io/devices"
# The scheduler reads requests, and takes those of a class without limits, too.
_ASKED = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"


def share_quota_policies(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the policies that refuse shares in namespaces without a quota for them, if any.

    They read ResourceQuotas as parameters; the API server's own sentence for a namespace that has
    none with the label is all that such a policy can say, so their names say what to do.
    """
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
    counted = (
        "params.spec.?hard.orValue({}).exists(k, "
        f"k == 'requests.' + {shared} || "
        f"(k.startsWith({share_class}) && k.endsWith({text(_CLASS_QUOTA)})))"
    )
    message = "'the ResourceQuota ' + params.metadata.name + " + text(
        f" has the label {SHARE_QUOTA_LABEL} and limits no shares; limit "
        f"{SHARE_CLASS}{_CLASS_QUOTA}"
    )
    policies = []
    for name, rule, asks in (
        (f"{NAME}-pods", on_create("", "pods"), pods),
        (f"{NAME}-claims", on_create("resource.k8s.io", "resourceclaims"), claims),
    ):
        policy, binding = validating_policy(
            name, rule, [{"name": "asks-for-shares", "expression": asks}], [], [(counted, message)]
        )
        policy["spec"]["paramKind"] = {"apiVersion": "v1", "kind": "ResourceQuota"}
        binding["spec"]["paramRef"] = {
            "selector": {"matchLabels": {SHARE_QUOTA_LABEL: "true"}},
            "parameterNotFoundAction": "Deny",
        }
        policies += [policy, binding]
    return policies
