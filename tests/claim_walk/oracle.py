"""What has to hold of claims at every instant, from what the API says and the walk's own facts.

It shares no code with the product: quantities, placements and sums are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from divvy.model.quantities import parse_quantity
from tests.claim_walk.asks import NAMESPACES, Ask, WalkPod
from tests.claim_walk.hardware import ALL_CORES, COMPUTE_SLICES, Gpu

_DRIVER = "divvy.gpu"
_UNITS = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}


class Broken(AssertionError):
    """Something that has to hold does not."""


@dataclass(frozen=True)
class Allocation:
    """One device that a claim was allocated."""

    claim: str
    tenant: str
    owners: frozenset[str]
    gpu: Gpu
    device: str
    kind: str
    device_tenant: str
    whole: bool
    memory_mib: int
    cores: int
    profile: str
    start: int
    consumes: Mapping[str, Fraction]


class Oracle:
    """Knows the GPUs and the slices of a sequence, and is told the claims."""

    def __init__(self, gpus: Iterable[Gpu], slices: Iterable[Mapping[str, Any]]) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._devices: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._counters: dict[str, dict[str, Fraction]] = {}
        for resource_slice in slices:
            spec = resource_slice["spec"]
            for device in spec.get("devices", ()):
                self._devices[spec["pool"]["name"], device["name"]] = device
            for shared_counter in spec.get("sharedCounters", ()):
                self._counters[shared_counter["name"]] = {
                    name: parse_quantity(value["value"])
                    for name, value in shared_counter["counters"].items()
                }

    def allocations(self, claims: Iterable[Mapping[str, Any]]) -> list[Allocation]:
        """Return every device that claims were allocated."""
        allocations = []
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                if result["driver"] == _DRIVER:
                    allocations.append(self._allocation(claim, result))
        return allocations

    def check(self, claims: Iterable[Mapping[str, Any]]) -> None:
        """Raise Broken if a GPU is given out in a way in which it must not be."""
        by_gpu: dict[str, list[Allocation]] = {}
        for allocation in self.allocations(claims):
            by_gpu.setdefault(allocation.gpu.uuid, []).append(allocation)
        for of_gpu in by_gpu.values():
            _check_gpu(of_gpu[0].gpu, of_gpu)
            self._check_counters(of_gpu)

    def check_pod(
        self,
        pod: WalkPod,
        node: str,
        uid: str,
        claims: Iterable[Mapping[str, Any]],
    ) -> None:
        """Raise Broken if a pod that was bound has not what it asked for."""
        own = [allocation for allocation in self.allocations(claims) if uid in allocation.owners]
        for allocation in own:
            _hold(allocation.gpu.node == node, f"{pod.name} on {node} has {allocation}")
        left = list(own)
        # The most demanding first: what fits a large request fits a small one, too.
        for ask in sorted(pod.asks, key=lambda ask: -(ask.memory or 0)):
            mine = [allocation for allocation in left if _gives(ask, allocation)][: ask.count]
            _hold(len(mine) == ask.count, f"{pod.name} asked for {ask} and has {own}")
            if ask.kind not in ("mig",):
                gpus = {allocation.gpu.uuid for allocation in mine}
                _hold(len(gpus) == ask.count, f"{pod.name}: twice of one GPU: {own}")
            left = [allocation for allocation in left if allocation not in mine]
        _hold(not left, f"{pod.name} has more than it asked for: {left}")

    def _allocation(self, claim: Mapping[str, Any], result: Mapping[str, Any]) -> Allocation:
        meta = claim["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"
        key = (result["pool"], result["device"])
        _hold(key in self._devices, f"{name} has {key}, which no slice offers")
        device = self._devices[key]
        attributes = {
            what: next(iter(value.values())) for what, value in device["attributes"].items()
        }
        gpu = self._gpus[attributes["uuid"]]
        consumed = result.get("consumedCapacity") or {}
        share = attributes["kind"] == "share"
        memory = _mib(consumed["memory"]) if share else gpu.model.memory_mib
        cores = int(consumed["cores"]) if share else ALL_CORES
        counter_sets = device.get("consumesCounters") or ()
        return Allocation(
            name,
            NAMESPACES[meta["namespace"]],
            frozenset(owner["uid"] for owner in meta.get("ownerReferences", ())),
            gpu,
            device["name"],
            attributes["kind"],
            attributes.get("tenant", ""),
            # By size a GPU's one device is the GPU whole where a claim takes all of it.
            attributes["kind"] == "gpu"
            or (share and memory == gpu.share_mib and cores == ALL_CORES),
            memory,
            cores,
            attributes.get("profile", ""),
            attributes.get("start", 0),
            {
                name: parse_quantity(v["value"])
                for counter_set in counter_sets
                for name, v in counter_set["counters"].items()
            },
        )

    def _check_counters(self, allocations: list[Allocation]) -> None:
        known = self._counters.get(allocations[0].gpu.uuid.lower())
        if known is None:
            return
        sums: dict[str, Fraction] = {}
        for device in {allocation.device: allocation for allocation in allocations}.values():
            for name, number in device.consumes.items():
                sums[name] = sums.get(name, 0) + number
        over = {name: number for name, number in sums.items() if number > known[name]}
        _hold(not over, f"counters {over} are more than {known}: {allocations}")


def _check_gpu(gpu: Gpu, allocations: list[Allocation]) -> None:
    offer = gpu.offer
    shares = [allocation for allocation in allocations if allocation.kind == "share"]
    parts = [allocation for allocation in allocations if allocation.kind == "mig"]
    if any(allocation.whole for allocation in allocations):
        _hold(len(allocations) == 1, f"a whole GPU is not alone: {allocations}")
    _hold(not (shares and parts), f"shares beside MIG devices: {allocations}")
    _hold(not shares or offer.shares, f"a share of a GPU without any: {allocations}")
    _hold(
        sum(share.memory_mib for share in shares) <= gpu.share_mib,
        f"too much memory: {allocations}",
    )
    _hold(sum(share.cores for share in shares) <= ALL_CORES, f"too much time: {allocations}")
    _hold(len(shares) <= offer.most, f"too many shares: {allocations}")
    for allocation in shares:
        _hold(allocation.memory_mib % offer.step_mib == 0, f"not in steps: {allocation}")
        _hold(
            allocation.device_tenant in ("", allocation.tenant), f"another tenant's: {allocation}"
        )
    tenants = {share.device_tenant for share in shares}
    _hold(len(tenants) <= 1, f"tenants on one GPU: {allocations}")
    _hold(not tenants or not offer.tenants or "" not in tenants, f"without a tenant: {allocations}")
    used: set[int] = set()
    for allocation in parts:
        part = gpu.model.parts[allocation.profile]
        _hold(allocation.start in part.starts, f"no placement of {gpu.model.name}: {allocation}")
        slices = set(range(allocation.start, allocation.start + part.size))
        _hold(used.isdisjoint(slices), f"placements overlap: {allocations}")
        used |= slices
    compute = sum(gpu.model.parts[part.profile].compute for part in parts)
    _hold(compute <= COMPUTE_SLICES, f"{compute} compute slices: {allocations}")


def _gives(ask: Ask, allocation: Allocation) -> bool:
    """Return whether a device is what was asked for, in its very size."""
    if ask.kind == "gpu":
        return allocation.whole and ask.allows(allocation.gpu)
    if ask.kind == "mig":
        return allocation.kind == "mig" and allocation.profile == ask.profile
    wanted = ask.tenant if ask.kind != "shared" else ""
    right = (
        allocation.kind == "share"
        and ask.allows(allocation.gpu)
        and allocation.device_tenant == wanted
    )
    return right and (allocation.memory_mib, allocation.cores) == ask.share_of(allocation.gpu)


def _mib(quantity: str) -> int:
    number = float(quantity[:-2]) * _UNITS[quantity[-2:]]
    _hold(number == int(number), f"no whole MiB: {quantity}")
    return int(number)


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)
