"""``kueue_quota``: what Kueue counts of a cluster's pools, and where it charges more than is used.

The rules are those of Kueue 0.19 (pkg/dra/capacity.go, counters.go, mapper.go and
pkg/config/validation.go): a class has one quota; the charge is the largest of all devices in the
cluster that a claim could get, whatever pool they are in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divvy.model import gpu_resource, mig_resource
from divvy.model.api_names import CLAIMS_DRIVER
from divvy.model.claim_devices import ClaimDevice
from divvy.model.claim_names import GPU_CLASS, MIG_CLASS, mig_class, share_class
from divvy.model.nvidia_claims import GPU_CLASS as NVIDIAS_GPUS
from divvy.model.nvidia_claims import MIG_CLASS as NVIDIAS_MIG
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.slice_specs import memory_counter
from divvy.model.stack import Names
from divvy.plan.predict.node_templates import offered_gpus
from divvy.plan.predict.prediction import NodePlan, Plan

Source = Literal["count", "capacity", "counter"]
SHARE_MEMORY, MIG_MEMORY = f"{CLAIMS_DRIVER}/share-memory", f"{CLAIMS_DRIVER}/mig-memory"
# Device classes that Kueue takes under one name.
MAX_CLASSES = 8
# The kinds of nodes of a pool, and how many nodes are of each kind.
_Nodes = Sequence[tuple[NodePlan, int]]


@dataclass(frozen=True)
class ClassMapping:
    """Device classes of one quota, counted by devices, or by the memory of shares or of MIG."""

    resource: str
    classes: tuple[str, ...]
    source: Source


@dataclass(frozen=True)
class Flavor:
    """A pool: the labels of its nodes, and what they offer in all, each resource alone.

    Resources are memory (MiB) where a mapping counts memory, and else a number of devices; every
    flavor has the same ones.
    """

    pool: str
    labels: Mapping[str, str]
    quota: Mapping[str, int]


@dataclass(frozen=True)
class KueueQuota:
    """What Kueue is given of a cluster.

    ``notes`` are sentences on what it charges or refuses otherwise than one would expect;
    ``unknown`` are the pools without hardware.
    """

    mappings: tuple[ClassMapping, ...]
    flavors: tuple[Flavor, ...]
    notes: tuple[str, ...]
    unknown: tuple[str, ...]


def kueue_quota(plan: Plan, names: Names) -> KueueQuota:
    """Return the quota of a plan's pools, in the order of the file."""
    pools: dict[str, _Nodes] = {
        pool.name: [(pool.node, pool.alike), *((node, 1) for node in pool.overrides.values())]
        for pool in plan.pools
        if pool.node is not None
    }
    mappings = _mappings({name for nodes in pools.values() for name in _classes_of(nodes)}, names)
    totals = {pool: _total(nodes, mappings) for pool, nodes in pools.items()}
    resources = sorted({resource for total in totals.values() for resource in total})
    return KueueQuota(
        mappings,
        tuple(
            Flavor(pool.name, pool.select or {}, {r: totals[pool.name][r] for r in resources})
            for pool in plan.pools
            if pool.name in pools
        ),
        (*_unequal_charges(pools), *_refused_resources(pools)),
        tuple(pool.name for pool in plan.pools if pool.node is None),
    )


def _mappings(classes: set[str], names: Names) -> tuple[ClassMapping, ...]:
    shares = sorted(name for name in classes if name.startswith(share_class(None)))
    partitions = sorted(name for name in classes if name.startswith(MIG_CLASS))
    gpus: tuple[str, ...] = (GPU_CLASS,)
    if names.classes is not None:
        gpus, partitions = (*gpus, NVIDIAS_GPUS), [*partitions, *[NVIDIAS_MIG][: len(partitions)]]
    whole = [ClassMapping(names.gpu, gpus, "count")] if GPU_CLASS in classes else []
    return (
        *whole,
        *_parted(SHARE_MEMORY, shares, "capacity"),
        *_parted(MIG_MEMORY, partitions, "counter"),
    )


def _parted(resource: str, classes: Sequence[str], source: Source) -> Iterator[ClassMapping]:
    for at in range(0, len(classes), MAX_CLASSES):
        name = f"{resource}-{at // MAX_CLASSES + 1}" if at else resource
        yield ClassMapping(name, tuple(classes[at : at + MAX_CLASSES]), source)


def _total(nodes: _Nodes, mappings: Sequence[ClassMapping]) -> Counter[str]:
    total: Counter[str] = Counter()
    for node, number in nodes:
        for resource, count in node.per_node.items():
            total[resource] += count * number
        for gpu in offered_gpus(node):
            offered = {name for device in gpu.gpu.devices for name in _classes(device)}
            for mapping in mappings:
                if not offered.isdisjoint(mapping.classes):
                    total[mapping.resource] += _amount(gpu, mapping.source) * number
    return total


def _amount(gpu: OfferedGpu, source: Source) -> int:
    match source:
        case "count":
            return 1
        case "counter":
            return memory_counter(gpu)
        case "capacity":
            return max(device.share.memory_mib for device in gpu.gpu.devices if device.share)


def _classes(device: ClaimDevice) -> Iterator[str]:
    """Yield the device classes that select a device."""
    if device.whole:
        yield GPU_CLASS
    if device.share is not None:
        yield share_class(device.tenant)
    if device.profile is not None:
        yield MIG_CLASS
        yield mig_class(device.profile.name)


def _classes_of(nodes: _Nodes) -> set[str]:
    return {name for device in _devices(nodes) for name in _classes(device)}


def _devices(nodes: _Nodes) -> Iterator[ClaimDevice]:
    for node, _ in nodes:
        for gpu in offered_gpus(node):
            yield from gpu.gpu.devices


def _unequal_charges(pools: Mapping[str, _Nodes]) -> Iterator[str]:
    """Yield what Kueue charges more for than a device takes, by class."""
    defaults, steps, partitions = (defaultdict[str, dict[int, str]](dict) for _ in range(3))
    for pool, nodes in pools.items():
        for device in _devices(nodes):
            for name in _classes(device):
                if device.share is not None and name != GPU_CLASS:
                    defaults[name].setdefault(device.share.default_mib, pool)
                    steps[name].setdefault(device.share.step_mib, pool)
                if device.profile is not None:
                    partitions[name].setdefault(device.memory_mib, pool)
    for name, sizes in sorted(defaults.items()):
        if len(sizes) > 1:
            yield (
                f"A claim of {name} without memory is charged the largest default of all pools: "
                f"{_listed(sizes)}."
            )
    for name, sizes in sorted(steps.items()):
        if len(sizes) > 1:
            yield (
                f"A claim of {name} is charged as where its size is rounded up most, in steps of "
                f"{_listed(sizes)}."
            )
    for name, sizes in sorted(partitions.items()):
        if len(sizes) > 1:
            remedy = "name a profile's class" if name == MIG_CLASS else "select the product"
            yield (
                f"A claim of {name} is charged the largest of {_listed(sizes)}; {remedy} to be "
                "charged for what it takes."
            )


def _listed(sizes: Mapping[int, str]) -> str:
    return ", ".join(f"{mib:,} MiB ({pool})" for mib, pool in sorted(sizes.items(), reverse=True))


def _refused_resources(pools: Mapping[str, _Nodes]) -> Iterator[str]:
    """Yield which resources of device plugins Kueue takes for those of a class with memory."""
    counted: dict[str, str] = {}
    for nodes in pools.values():
        for device in _devices(nodes):
            if device.share is not None and device.tenant is None:
                counted[gpu_resource(shared=True)] = share_class(None)
            if device.profile is not None:
                name = device.profile.name
                counted[mig_resource(name)] = mig_class(name)
    for resource, name in sorted(counted.items()):
        advertising = [
            pool
            for pool, nodes in pools.items()
            if any(resource in node.per_node for node, _ in nodes)
        ]
        if advertising:
            yield (
                f"Kueue refuses pods that request {resource}, also of {', '.join(advertising)}: it "
                f"is the resource of {name}, which is counted by memory."
            )
