"""Namespaces whose ResourceQuotas limit GPUs, and leave out shares and NVIDIA's classes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    CLAIM_COUNT_QUOTA,
    CLASS_QUOTA,
    CLASS_RESOURCE,
    SHARE_QUOTA_LABEL,
    TENANT_LABEL,
)
from divvy.model.claim_names import GPU_CLASS, SHARE_CLASS, share_class
from divvy.model.nvidia_claims import CLASSES
from divvy.model.phrases import some
from divvy.model.resource_names import VENDOR, gpu_resource
from divvy.plan.quota.claim_quota import has_scopes

_MAX_NAMESPACES = 5


@dataclass(frozen=True)
class UncoveredQuota:
    """A namespace with a quota for GPUs, and the names that a quota for its claims would have."""

    namespace: str
    missing: tuple[str, ...]


def uncovered_quotas(
    cluster: Cluster,
    quotas: Iterable[Mapping[str, Any]],
    namespaces: Iterable[Mapping[str, Any]],
) -> tuple[UncoveredQuota, ...]:
    """Return the namespaces in which claims go round the quota for GPUs, by name.

    A namespace that is labelled for shares counts, too: its label says that it has such a quota.
    A quota with scopes limits GPUs, but counts no claims.
    """
    limited: dict[str, set[str]] = {}
    counted: dict[str, set[str]] = {}
    for quota in quotas:
        hard = (quota.get("spec") or {}).get("hard") or {}
        for names in (limited,) if has_scopes(quota) else (limited, counted):
            names.setdefault(quota["metadata"]["namespace"], set()).update(hard)
    labels = {
        namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {}
        for namespace in namespaces
    }
    # Of no extended resource, so that a quota of one counts none of their claims.
    nvidias = CLASSES if cluster.claims and cluster.names.classes is not None else ()
    uncovered = []
    for namespace in sorted(limited.keys() | labels.keys()):
        limits, own = limited.get(namespace, set()), labels.get(namespace, {})
        labelled = cluster.quota.shares == "required" and own.get(SHARE_QUOTA_LABEL) == "true"
        if not labelled and not any(_limits_gpus(name, cluster) for name in limits):
            continue
        tenant = own.get(TENANT_LABEL)
        missing = [
            f"{device_class}{CLASS_QUOTA}"
            for device_class in (*map(share_class, _owners(cluster, tenant)), *nvidias)
            if counted.get(namespace, set()).isdisjoint(_covering(device_class))
        ]
        if missing:
            uncovered.append(UncoveredQuota(namespace, tuple(missing)))
    return tuple(uncovered)


def quota_warning(uncovered: Iterable[UncoveredQuota]) -> str | None:
    """Return one sentence for all namespaces, None if every quota covers claims."""
    listed = [f"{quota.namespace} ({', '.join(quota.missing)})" for quota in uncovered]
    if not listed:
        return None
    return (
        "claims, which can be as large as a GPU, are not limited by the ResourceQuotas of these "
        f"namespaces; add to {some(listed, _MAX_NAMESPACES)}"
    )


def size_quota_warning(cluster: Cluster, quotas: Iterable[Mapping[str, Any]]) -> str | None:
    """Return one sentence for the quotas of sizes, None if there are none.

    A size has become a claim before ResourceQuotas are counted.
    """
    sizes = {cluster.names.memory, cluster.names.memory_percentage, cluster.names.cores}
    listed = sorted(
        f"{quota['metadata']['namespace']} ({name})"
        for quota in quotas
        for name in (quota.get("spec") or {}).get("hard") or {}
        if _resource(name) in sizes
    )
    if not listed:
        return None
    return (
        "ResourceQuotas count no sizes, which become claims before quotas are counted; these limit "
        f"nothing: {some(listed, _MAX_NAMESPACES)}; Kueue can count MiB "
        "(divvy plan -o kueue)"
    )


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")


def _limits_gpus(name: str, cluster: Cluster) -> bool:
    resource = _resource(name)
    gpus = (cluster.names.gpu, f"{VENDOR}/gpu", f"{VENDOR}/mig-")
    return resource.startswith(gpus) or name == f"{GPU_CLASS}{CLASS_QUOTA}"


def _covering(device_class: str) -> set[str]:
    """Return the names under which a quota counts the devices of a class."""
    by_class = {f"{device_class}{CLASS_QUOTA}", f"requests.{CLASS_RESOURCE}{device_class}"}
    shared = {f"requests.{gpu_resource(shared=True)}"} if device_class == SHARE_CLASS else set()
    return {*by_class, *shared, CLAIM_COUNT_QUOTA}


def _owners(cluster: Cluster, tenant: str | None) -> list[str | None]:
    """Return whose shares the pods of a tenant, or of none, can claim."""
    owners = {
        owner
        for claims in cluster.claims
        if claims.shares is not None
        for owner in (claims.tenants or (None,))
    }
    own = (owner for owner in owners if owner in (None, tenant))
    return sorted(own, key=lambda owner: owner or "")
