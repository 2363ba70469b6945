"""Reads what drivers of claims publish of nodes' GPUs: NVIDIA's is read, others are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from divvy.model.claim_names import MEMORY, NVIDIA, PROFILE, UUID
from divvy.model.nvidia_claims import TYPE
from divvy.model.quantities import parse_quantity

_MIB = 1 << 20


@dataclass(frozen=True)
class ClaimedGpus:
    """The GPUs of one node: how many, of what product, and a profile that lets pods claim them.

    ``problem`` says why no stack file can have them, "" if one can.
    """

    gpus: int = 0
    product: str | None = None
    memory_mib: int | None = None
    profile: Any = None
    problem: str = ""


def claimed_gpus(specs: Iterable[Mapping[str, Any]]) -> dict[str, ClaimedGpus]:
    """Return by node what drivers publish of GPUs in the ``spec`` of ResourceSlices."""
    drivers: dict[str, set[str]] = {}
    newest: dict[tuple[str, str], int] = {}
    listed = [spec for spec in specs if spec.get("nodeName") and "gpu" in str(spec["driver"])]
    for spec in listed:
        drivers.setdefault(str(spec["nodeName"]), set()).add(str(spec["driver"]))
        newest[_pool(spec)] = max(newest.get(_pool(spec), 0), _generation(spec))
    claimed: dict[str, ClaimedGpus] = {}
    for node, names in drivers.items():
        if names != {NVIDIA}:
            others = ", ".join(sorted(names))
            claimed[node] = ClaimedGpus(problem=f"is served to ResourceClaims by {others}")
            continue
        current = [
            spec
            for spec in listed
            if spec["nodeName"] == node and _generation(spec) == newest[_pool(spec)]
        ]
        try:
            claimed[node] = _of_nvidia(current)
        except (KeyError, TypeError, ValueError, AttributeError):
            claimed[node] = ClaimedGpus(
                problem=f"has ResourceSlices of {NVIDIA} that cannot be read"
            )
    return claimed


def _pool(spec: Mapping[str, Any]) -> tuple[str, str]:
    return str(spec["driver"]), str((spec.get("pool") or {}).get("name"))


def _generation(spec: Mapping[str, Any]) -> int:
    return int((spec.get("pool") or {}).get("generation") or 0)


def _of_nvidia(specs: Sequence[Mapping[str, Any]]) -> ClaimedGpus:
    """Return what the devices of a node are; raises what Python raises of other shapes."""
    slices = Counter(map(_pool, specs))
    if any(slices[_pool(spec)] < spec["pool"].get("resourceSliceCount", 1) for spec in specs):
        return ClaimedGpus(problem=f"has a part of its ResourceSlices of {NVIDIA} alone")
    uuids, products, sizes, mig = set(), set(), set(), set()
    shared = False
    for device in chain.from_iterable(spec.get("devices") or () for spec in specs):
        attributes = {
            name.removeprefix(f"{NVIDIA}/"): value for name, value in device["attributes"].items()
        }
        kind = attributes[TYPE]["string"]
        if kind == "gpu":
            uuids.add(attributes[UUID]["string"])
            capacity = {
                name.removeprefix(f"{NVIDIA}/"): value for name, value in device["capacity"].items()
            }
            sizes.add(int(parse_quantity(capacity[MEMORY]["value"]) // _MIB))
        elif kind == "mig":
            uuids.add(attributes["parentUUID"]["string"])
            mig.add(attributes[PROFILE]["string"])
        else:
            return ClaimedGpus(problem=f"has devices of the type {kind}, which Divvy does not have")
        products.add(attributes["productName"]["string"])
        shared |= bool(device.get("allowMultipleAllocations"))
    if not uuids:
        return ClaimedGpus(problem=f"has no device in its ResourceSlices of {NVIDIA}")
    if len(products) > 1:
        return ClaimedGpus(problem=f"has GPUs of several models: {', '.join(sorted(products))}")
    claims: dict[str, Any] = {"shares": {}} if shared else {}
    claims |= {"mig": sorted(mig)} if mig else {}
    product = "-".join(products.pop().split())
    size = sizes.pop() if len(sizes) == 1 else None
    return ClaimedGpus(len(uuids), product, size, {"claims": claims})
