"""Namespaces whose ResourceQuotas limit GPUs, and leave out the shares that claims give."""

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
from divvy.model.claim_names import GPU_CLASS, share_class
from divvy.model.phrases import some
from divvy.model.resource_names import VENDOR, gpu_resource
from divvy.plan.quota.claim_quota import has_scopes

_MAX_NAMESPACES = 5


@dataclass(frozen=True)
class UncoveredQuota:
    """A namespace with a quota for GPUs, and the names that a quota for its shares would have."""

    namespace: str
    missing: tuple[str, ...]


def uncovered_quotas(
    cluster: Cluster,
    quotas: Iterable[Mapping[str, Any]],
    namespaces: Iterable[Mapping[str, Any]],
) -> tuple[UncoveredQuota, ...]:
    """Return the namespaces in which shares go round the quota for GPUs, by name.

    A namespace that is labelled for shares counts, too: its label says that it has such a quota.
    A quota with scopes limits GPUs, but counts no shares.
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
    uncovered = []
    for namespace in sorted(limited.keys() | labels.keys()):
        limits, own = limited.get(namespace, set()), labels.get(namespace, {})
        labelled = cluster.quota.shares == "required" and own.get(SHARE_QUOTA_LABEL) == "true"
        if not labelled and not any(_limits_gpus(name, cluster) for name in limits):
            continue
        tenant = own.get(TENANT_LABEL)
        missing = [
            f"{share_class(owner)}{CLASS_QUOTA}"
            for owner in _owners(cluster, tenant)
            if counted.get(namespace, set()).isdisjoint(_covering(owner))
        ]
        if missing:
            uncovered.append(UncoveredQuota(namespace, tuple(missing)))
    return tuple(uncovered)


def quota_warning(uncovered: Iterable[UncoveredQuota]) -> str | None:
    """Return one sentence for all namespaces, None if every quota covers shares."""
    listed = [f"{quota.namespace} ({', '.join(quota.missing)})" for quota in uncovered]
    if not listed:
        return None
    return (
        "shares, which can be as large as a GPU, are not limited by the ResourceQuotas of these "
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


def _covering(owner: str | None) -> set[str]:
    """Return the names under which a quota counts the shares of a tenant, or of none."""
    own = share_class(owner)
    covering = {f"{own}{CLASS_QUOTA}", f"requests.{CLASS_RESOURCE}{own}", CLAIM_COUNT_QUOTA}
    return covering | ({f"requests.{gpu_resource(shared=True)}"} if owner is None else set())


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
