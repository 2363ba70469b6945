"""The policies that refuse shares in namespaces without a confirmed quota for them.

A policy cannot ask whether a namespace has a ResourceQuota: one with ResourceQuotas as parameters
refuses every pod of a namespace that has none, before it looks at what the pod asks for. So the
administrator labels namespaces, and `divvy validate --live` compares labels with quotas.
"""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import CLASS_QUOTA, CLASS_RESOURCE, SHARE_QUOTA_LABEL, TEMPLATE_PREFIX
from divvy.model.claim_names import SHARE_CLASS
from divvy.model.nvidia_claims import GPU_CLASS as NVIDIAS_GPUS
from divvy.model.resource_names import gpu_resource
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import BOTH_LISTS, line, text
from divvy.render.objects.policy import validating_policy

PODS, CLAIMS, NVIDIAS_CLAIMS = (
    f"divvy-share-quota-{name}" for name in ("pods", "claims", "nvidias-claims")
)
_CLASS = "d.?deviceClassName.orValue('')"


def share_quota_policies(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the policies for pods and for claims, none if a quota is optional."""
    if cluster.quota.shares != "required":
        return []
    labelled = f"namespaceObject.metadata.?labels[?{text(SHARE_QUOTA_LABEL)}].orValue('') == 'true'"
    message = (
        "'shares of GPUs need a quota: limit ' + variables.classes[0] + "
        f"'{CLASS_QUOTA} in a ResourceQuota of the namespace ' + namespaceObject.metadata.name + "
        + text(f", then label the namespace {SHARE_QUOTA_LABEL}: true")
    )
    claims = match_constraints("resource.k8s.io", "resourceclaims")
    asked = [
        (PODS, match_constraints("", "pods"), _classes_of_pod()),
        (CLAIMS, claims, _classes(f"{_CLASS}.startsWith({text(SHARE_CLASS)})")),
    ]
    if cluster.names.classes is not None:
        # By a size, a claim of NVIDIA's class for whole GPUs is one for a share.
        sized = "d.?capacity.?requests.orValue({}).size() > 0"
        nvidias = f"{_CLASS} == {text(NVIDIAS_GPUS)} && {sized}"
        asked.append((NVIDIAS_CLAIMS, claims, _classes(nvidias)))
    return [
        obj
        for name, constraints, classes in asked
        for obj in validating_policy(
            name,
            constraints,
            [(labelled, message)],
            conditions={"asks-for-shares": f"({classes}).size() > 0"},
            variables={"classes": classes},
        )
    ]


def _classes_of_pod() -> str:
    """Return the classes of shares that a pod asks for: by size, or as extended resources."""
    of_share = text(f"^{TEMPLATE_PREFIX}[0-9]+x[0-9]+[mp]")
    share_class, shared = text(SHARE_CLASS), text(gpu_resource(shared=True))
    by_class = text(f"{CLASS_RESOURCE}{SHARE_CLASS}")
    return line(
        "object.spec.?resourceClaims.orValue([])"
        f".map(r, r.?resourceClaimTemplateName.orValue('')).filter(t, t.matches({of_share}))"
        f".map(t, t.contains('.tenant.') ? {share_class} + '-' + t.split('.tenant.')[1] "
        f": {share_class}) + "
        "(object.spec.containers + object.spec.?initContainers.orValue([])).map(c, "
        f"{BOTH_LISTS}.map(l, l.filter(k, k == {shared} || k.startsWith({by_class}))).flatten()"
        f").flatten().map(k, k == {shared} ? {share_class} : k.substring({len(CLASS_RESOURCE)}))"
    )


def _classes(condition: str) -> str:
    """Return the classes of a claim's requests ``d``, and of their alternatives, by a condition."""
    return line(
        "object.spec.?devices.?requests.orValue([]).map(r, ([r.?exactly.orValue({})] "
        f"+ r.?firstAvailable.orValue([])).filter(d, {condition})"
        ".map(d, d.deviceClassName)).flatten()"
    )
