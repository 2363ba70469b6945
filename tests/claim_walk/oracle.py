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
class Taken:
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
        for one in slices:
            spec = one["spec"]
            for device in spec.get("devices", ()):
                self._devices[spec["pool"]["name"], device["name"]] = device
            for shared_counter in spec.get("sharedCounters", ()):
                self._counters[shared_counter["name"]] = {
                    name: parse_quantity(value["value"])
                    for name, value in shared_counter["counters"].items()
                }

    def taken(self, claims: Iterable[Mapping[str, Any]]) -> list[Taken]:
        """Return every device that claims were allocated."""
        found = []
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                if result["driver"] == _DRIVER:
                    found.append(self._one(claim, result))
        return found

    def check(self, claims: Iterable[Mapping[str, Any]]) -> None:
        """Raise Broken where a GPU is given out in a way in which it must not be."""
        by_gpu: dict[str, list[Taken]] = {}
        for one in self.taken(claims):
            by_gpu.setdefault(one.gpu.uuid, []).append(one)
        for taken in by_gpu.values():
            _check_gpu(taken[0].gpu, taken)
            self._check_counters(taken)

    def check_pod(
        self,
        asked: WalkPod,
        node: str,
        uid: str,
        claims: Iterable[Mapping[str, Any]],
    ) -> None:
        """Raise Broken where a pod that was bound has not what it asked for."""
        own = [one for one in self.taken(claims) if uid in one.owners]
        for one in own:
            _hold(one.gpu.node == node, f"{asked.name} on {node} has {one}")
        left = list(own)
        # The most demanding first: what fits a large request fits a small one, too.
        for ask in sorted(asked.asks, key=lambda one: -(one.memory or 0)):
            mine = [one for one in left if _gives(ask, one)][: ask.count]
            _hold(len(mine) == ask.count, f"{asked.name} asked for {ask} and has {own}")
            if ask.kind not in ("mig",):
                gpus = {one.gpu.uuid for one in mine}
                _hold(len(gpus) == ask.count, f"{asked.name}: twice of one GPU: {own}")
            left = [one for one in left if one not in mine]
        _hold(not left, f"{asked.name} has more than it asked for: {left}")

    def _one(self, claim: Mapping[str, Any], result: Mapping[str, Any]) -> Taken:
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
        taken = device.get("consumesCounters") or ()
        return Taken(
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
                for each in taken
                for name, v in each["counters"].items()
            },
        )

    def _check_counters(self, taken: list[Taken]) -> None:
        known = self._counters.get(taken[0].gpu.uuid.lower())
        if known is None:
            return
        sums: dict[str, Fraction] = {}
        for device in {one.device: one for one in taken}.values():
            for name, number in device.consumes.items():
                sums[name] = sums.get(name, 0) + number
        over = {name: number for name, number in sums.items() if number > known[name]}
        _hold(not over, f"counters {over} are more than {known}: {taken}")


def _check_gpu(gpu: Gpu, taken: list[Taken]) -> None:
    offer = gpu.offer
    shares = [one for one in taken if one.kind == "share"]
    parts = [one for one in taken if one.kind == "mig"]
    if any(one.whole for one in taken):
        _hold(len(taken) == 1, f"a whole GPU is not alone: {taken}")
    _hold(not (shares and parts), f"shares beside MIG devices: {taken}")
    _hold(not shares or offer.shares, f"a share of a GPU without any: {taken}")
    _hold(sum(share.memory_mib for share in shares) <= gpu.share_mib, f"too much memory: {taken}")
    _hold(sum(share.cores for share in shares) <= ALL_CORES, f"too much time: {taken}")
    _hold(len(shares) <= offer.most, f"too many shares: {taken}")
    for one in shares:
        _hold(one.memory_mib % offer.step_mib == 0, f"not in steps: {one}")
        _hold(one.device_tenant in ("", one.tenant), f"another tenant's: {one}")
    tenants = {share.device_tenant for share in shares}
    _hold(len(tenants) <= 1, f"tenants on one GPU: {taken}")
    _hold(not tenants or not offer.tenants or "" not in tenants, f"without a tenant: {taken}")
    used: set[int] = set()
    for one in parts:
        part = gpu.model.parts[one.profile]
        _hold(one.start in part.starts, f"no placement of {gpu.model.name}: {one}")
        slices = set(range(one.start, one.start + part.size))
        _hold(used.isdisjoint(slices), f"placements overlap: {taken}")
        used |= slices
    compute = sum(gpu.model.parts[one.profile].compute for one in parts)
    _hold(compute <= COMPUTE_SLICES, f"{compute} compute slices: {taken}")


def _gives(ask: Ask, one: Taken) -> bool:
    """Return whether a device is what was asked for, in its very size."""
    if ask.kind == "gpu":
        return one.whole and ask.allows(one.gpu)
    if ask.kind == "mig":
        return one.kind == "mig" and one.profile == ask.profile
    wanted = ask.tenant if ask.kind != "shared" else ""
    right = one.kind == "share" and ask.allows(one.gpu) and one.device_tenant == wanted
    return right and (one.memory_mib, one.cores) == ask.share_of(one.gpu)


def _mib(quantity: str) -> int:
    number = float(quantity[:-2]) * _UNITS[quantity[-2:]]
    _hold(number == int(number), f"no whole MiB: {quantity}")
    return int(number)


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)
