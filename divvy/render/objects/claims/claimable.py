"""The devices that profiles let pods claim, as the objects need to know them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from divvy.model import Cluster, UnknownGpuModel, gpu_model
from divvy.model.claim_names import type_of_product
from divvy.model.gpu_models import GpuModel

# No GPU has as much; what is larger was meant in another unit.
UNKNOWN_LARGEST_MIB = 1 << 22


@dataclass(frozen=True)
class Claimable:
    """What claims can ask for in a cluster.

    ``tenants_only`` says that no share is for a namespace without a tenant. ``largest_mib`` is the
    memory of the largest share and ``types`` are the types of all GPUs, as far as every pool says
    what hardware it has: else ``types`` is empty and ``largest_mib`` is more than any GPU's.
    """

    any: bool
    shares: bool
    tenants: tuple[str, ...]
    tenants_only: bool
    mig: tuple[str, ...]
    largest_mib: int
    types: tuple[str, ...]


def claimable(cluster: Cluster) -> Claimable:
    """Return what the profiles of a cluster let pods claim."""
    claims = cluster.claims
    shared = [claim for claim in claims if claim.shares is not None]
    tenants = sorted({tenant for claim in shared for tenant in claim.tenants})
    models = _models(cluster)
    # Exact, as the chart computes it.
    factors = (claim.shares.memory.factor for claim in shared if claim.shares is not None)
    factor = max(factors, default=Fraction(1))
    return Claimable(
        any=bool(claims),
        shares=bool(shared),
        tenants=tuple(tenants),
        tenants_only=all(claim.tenants for claim in shared),
        mig=tuple(sorted({name for claim in claims for name in claim.mig})),
        largest_mib=int(max(model.memory_mib for model in models) * factor)
        if models
        else UNKNOWN_LARGEST_MIB,
        types=tuple(sorted({type_ for model in models for type_ in types_of(model)})),
    )


def types_of(model: GpuModel) -> set[str]:
    """Return the types of a model under all names that drivers give it."""
    return {type_of_product(product) for product in (model.product, *model.products)}


def _models(cluster: Cluster) -> list[GpuModel]:
    """Return the models of all pools, none if one pool does not say, or of an unknown model."""
    models = []
    for pool in cluster.pools.values():
        if pool.hardware is None:
            return []
        try:
            models.append(gpu_model(pool.hardware.model))
        except UnknownGpuModel:
            return []
    return models
