"""The feature labels of a node, under the names GPU Feature Discovery made common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.mig_plan import profile_name
from divvy.agent.plugin.inventory import Resource
from divvy.model.api_names import OWNED_LABELS
from divvy.model.mig_names import resource_part

_FAMILIES = {
    (7, 5): "turing",
    (7, 0): "volta",
    (8, 9): "ada-lovelace",
}
_FAMILIES_BY_MAJOR = {
    5: "maxwell",
    6: "pascal",
    8: "ampere",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
_PREFIX = "nvidia.com"
_MAX_VALUE = 63
# What is no longer written under them is removed.
OWNED = re.compile(OWNED_LABELS)


def feature_labels(
    snapshot: Snapshot | None, resources: Sequence[Resource], strategy: str | None
) -> dict[str, str]:
    """Describe a node; ``strategy`` is "single", "mixed" or None if nothing is partitioned."""
    gpus = () if snapshot is None else tuple(gpu for gpu in snapshot.gpus if not gpu.lost)
    if snapshot is None or not gpus:
        return {}
    # A resource that is no longer advertised has an empty list, and says nothing about sharing.
    resources = [resource for resource in resources if resource.devices]
    first = gpus[0]
    labels = {
        "gpu.count": str(len(gpus)),
        "gpu.product": _product(first, resources),
        "gpu.memory": str(first.memory_mib),
        "gpu.family": _family(first.compute_capability),
        "gpu.compute.major": str(first.compute_capability[0]),
        "gpu.compute.minor": str(first.compute_capability[1]),
        "mig.capable": str(any(gpu.mig_mode is not None for gpu in gpus)).lower(),
        **_sharing("gpu", resources, "gpu"),
        **_versions(snapshot),
    }
    if strategy is not None:
        labels["mig.strategy"] = strategy
    labels.update(_single(snapshot, resources))
    labels.update(_mig(snapshot, resources))
    return {f"{_PREFIX}/{name}": value for name, value in sorted(labels.items())}


def sanitised(text: str) -> str:
    """Return a product name as a label value: odd characters dropped, spaces made dashes."""
    return re.sub(r"\s+", "-", re.sub(r"[^A-Za-z0-9\-_. ]", "", text).strip())


def _product_value(product: str, what: str) -> str:
    """Add what is said of a product to its name, which is cut where it is too long for a label."""
    # With one invalid value, the API server refuses the whole patch.
    return f"{sanitised(product)[: _MAX_VALUE - len(what)].rstrip('-_.')}{what}".lstrip("-_.")


def _product(gpu: Gpu, resources: Sequence[Resource]) -> str:
    shared = any(
        resource.name == f"{_PREFIX}/gpu" and resource.sharing.is_shared for resource in resources
    )
    return _product_value(gpu.product, "-SHARED" if shared else "")


def _family(capability: tuple[int, int]) -> str:
    return _FAMILIES.get(capability) or _FAMILIES_BY_MAJOR.get(capability[0], "undefined")


def _sharing(name: str, resources: Sequence[Resource], kind: str) -> dict[str, str]:
    """Return how devices of one kind are shared: 0 replicas where everything is of another kind."""
    replicas = [resource.sharing.replicas for resource in resources if resource.kind == kind]
    most = max(replicas, default=0 if any(resource.kind == "mig" for resource in resources) else 1)
    by_mps = any(resource.sharing.by_mps for resource in resources if resource.kind == kind)
    strategy = "mps" if by_mps else "time-slicing" if most > 1 else "none"
    return {f"{name}.replicas": str(most), f"{name}.sharing-strategy": strategy}


def _versions(snapshot: Snapshot) -> Mapping[str, str]:
    major, _, rest = snapshot.driver_version.partition(".")
    minor, _, revision = rest.partition(".")
    cuda_major, cuda_minor = snapshot.cuda_version
    labels = {
        "cuda.driver-version.full": snapshot.driver_version,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
        "cuda.runtime-version.major": str(cuda_major),
        "cuda.runtime-version.minor": str(cuda_minor),
    }
    return {name: value for name, value in labels.items() if value}


def _single(snapshot: Snapshot, resources: Sequence[Resource]) -> dict[str, str]:
    """Describe MIG devices advertised as GPUs (strategy "single") under the GPUs' names."""
    for resource in resources:
        base = resource.name.removesuffix(".shared")
        if resource.kind == "mig" and base == f"{_PREFIX}/gpu":
            suffix = "-SHARED" if resource.sharing.is_shared and resource.name == base else ""
            return _instances("gpu", snapshot, resource, suffix)
    return {}


def _mig(snapshot: Snapshot, resources: Sequence[Resource]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for resource in resources:
        name = resource.name.removeprefix(f"{_PREFIX}/").removesuffix(".shared")
        if resource.kind == "mig" and name.startswith("mig-"):
            labels |= _instances(name, snapshot, resource, "")
    return labels


def _instances(
    name: str, snapshot: Snapshot, resource: Resource, product_suffix: str
) -> dict[str, str]:
    uuids = {device.uuid for device in resource.devices}
    gpu = snapshot.gpu(resource.devices[0].gpu)
    if gpu is None:
        return {}
    instance = next((candidate for candidate in gpu.instances if candidate.uuid in uuids), None)
    if instance is None:
        return {}
    profile = resource_part(profile_name(gpu, instance) or "unknown")
    return {
        f"{name}.count": str(len(uuids)),
        f"{name}.memory": str(instance.memory_mib),
        f"{name}.multiprocessors": str(instance.sms),
        f"{name}.product": _product_value(gpu.product, f"-MIG-{profile}{product_suffix}"),
        **_sharing(name, [resource], "mig"),
    }
