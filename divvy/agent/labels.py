"""The feature labels of a node, under the names GPU Feature Discovery made common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from divvy.agent.hardware import Gpu, Snapshot
from divvy.agent.inventory import Resource, profile_name

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
}
_PREFIX = "nvidia.com"
# Every label this agent owns begins with one of these; what is not written any
# more under them is removed.
OWNED = re.compile(
    r"^nvidia\.com/(gpu\.(count|product|memory|family|compute\.(major|minor)|replicas|"
    r"sharing-strategy)|cuda\.(driver-version|runtime-version)\..*|mig\.(capable|strategy)|"
    r"mig-[^/]*\.(count|memory|multiprocessors|product|replicas|sharing-strategy))$"
)


def feature_labels(
    snapshot: Snapshot | None, resources: Sequence[Resource], strategy: str | None
) -> dict[str, str]:
    """Describe a node; ``strategy`` is "single", "mixed" or None where nothing is partitioned."""
    if snapshot is None or not snapshot.gpus:
        return {}
    # What is offered no more is served as an empty list, and says nothing about sharing.
    resources = [resource for resource in resources if resource.devices]
    first = snapshot.gpus[0]
    labels = {
        "gpu.count": str(len(snapshot.gpus)),
        "gpu.product": _product(first, resources),
        "gpu.memory": str(first.memory_mib),
        "gpu.family": _family(first.compute_capability),
        "gpu.compute.major": str(first.compute_capability[0]),
        "gpu.compute.minor": str(first.compute_capability[1]),
        "mig.capable": str(any(gpu.mig_mode is not None for gpu in snapshot.gpus)).lower(),
        **_sharing("gpu", [resource for resource in resources if resource.kind == "gpu"]),
        **_versions(snapshot),
    }
    if strategy is not None:
        labels["mig.strategy"] = strategy
    labels.update(_mig(snapshot, resources))
    return {f"{_PREFIX}/{name}": value for name, value in sorted(labels.items())}


def sanitised(text: str) -> str:
    """Return a product name as a label value: odd characters dropped, spaces made dashes."""
    return re.sub(r"\s+", "-", re.sub(r"[^A-Za-z0-9\-_. ]", "", text).strip())


def _product(gpu: Gpu, resources: Sequence[Resource]) -> str:
    shared = any(
        resource.name == f"{_PREFIX}/gpu" and resource.replicas > 1 for resource in resources
    )
    return sanitised(gpu.product) + ("-SHARED" if shared else "")


def _family(capability: tuple[int, int]) -> str:
    return _FAMILIES.get(capability) or _FAMILIES_BY_MAJOR.get(capability[0], "undefined")


def _sharing(name: str, resources: Sequence[Resource]) -> dict[str, str]:
    replicas = max((resource.replicas for resource in resources), default=1)
    strategy = "time-slicing" if replicas > 1 else "none"
    return {f"{name}.replicas": str(replicas), f"{name}.sharing-strategy": strategy}


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


def _mig(snapshot: Snapshot, resources: Sequence[Resource]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for resource in resources:
        if resource.kind != "mig":
            continue
        name = resource.name.removeprefix(f"{_PREFIX}/").removesuffix(".shared")
        if not name.startswith("mig-"):
            continue
        uuids = {device.uuid for device in resource.devices}
        gpu = snapshot.gpu(resource.devices[0].gpu)
        if gpu is None:
            continue
        instance = next((found for found in gpu.instances if found.uuid in uuids), None)
        if instance is None:
            continue
        labels[f"{name}.count"] = str(len(uuids))
        labels[f"{name}.memory"] = str(instance.memory_mib)
        labels[f"{name}.multiprocessors"] = str(instance.sms)
        profile = profile_name(gpu, instance) or "unknown"
        labels[f"{name}.product"] = sanitised(f"{gpu.product}-MIG-{profile}")
        labels.update(_sharing(name, [resource]))
    return labels
