"""The offer of another DRA driver on a node, as its ResourceSlices show it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from divvy.model import mig_resource
from divvy.model.claim_status import allocation_results
from divvy.model.quantities import parse_quantity
from divvy.model.resource_names import GPU
from divvy.plan.fit.live_claims import (
    ClaimedGpu,
    Holder,
    LiveDevice,
    holders_by_device,
    holders_of,
)
from divvy.plan.fit.readable import UNREADABLE

_log = logging.getLogger(__name__)
# Capacity of a device that so many claims may have at once.
_SHARES = "shares"
_MIB = 1 << 20


def offered_devices(
    slices: Iterable[Mapping[str, Any]],
    classes: Iterable[Mapping[str, Any]],
    driver: str,
    node: str,
) -> Mapping[str, int]:
    """Return how many devices a driver offers, by the resource that pods name to get one.

    A device for several claims counts as often as claims can have it; one that no class lets pods
    name by the resource of its kind does not count.
    """
    named = {device_class["spec"].get("extendedResourceName") for device_class in classes}
    counts: Counter[str] = Counter()
    for spec, device in _devices(slices, driver):
        if spec.get("nodeName") != node:
            continue
        kind, profile = _attribute(device, "type"), _attribute(device, "profile")
        shares = (device.get("capacity") or {}).get(_SHARES) or {"value": "1"}
        resource = GPU if kind == "gpu" else mig_resource(profile)
        counts[resource] += int(parse_quantity(shares["value"]))
    return {resource: counts[resource] for resource in sorted(counts) if resource in named}


def whole_gpus(
    slices: Iterable[Mapping[str, Any]],
    claims: Iterable[Mapping[str, Any]],
    driver: str,
    node: str,
    unread: Iterable[str] = (),
) -> tuple[ClaimedGpu, ...]:
    """Return the undivided GPUs that a driver offers on a node, with their holders.

    ``unread`` are claims, by name, of which nothing could be read: they may hold any of them.

    They are numbered as the driver's device nodes are, which its devices are named after. One whose
    memory claims can have in parts is a share as well.
    """
    held = holders_by_device(claims, driver, unread=unread)
    gpus = []
    for spec, device in _devices(slices, driver):
        if spec.get("nodeName") != node or _attribute(device, "type") != "gpu":
            continue
        holders = holders_of(held, spec["pool"]["name"], device["name"])
        try:
            gpus.append(_whole_gpu(spec, device, holders))
        except UNREADABLE as error:  # of another driver's, whose devices may be of any shape
            _log.warning("device %s of %s is left out: %r", device["name"], driver, error)
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _whole_gpu(
    spec: Mapping[str, Any], device: Mapping[str, Any], holders: tuple[Holder, ...]
) -> ClaimedGpu:
    memory = device["capacity"]["memory"]
    memory_mib = _mib(memory["value"])
    sizes = (memory.get("requestPolicy") or {}).get("validRange")
    shared = bool(device.get("allowMultipleAllocations"))
    # A range without a step has every size.
    step_mib = max(1, _mib(sizes.get("step") or "1Mi")) if shared and sizes else 0
    most = int(parse_quantity(device["capacity"].get(_SHARES, {"value": "0"})["value"]))
    live_device = LiveDevice(
        device["name"],
        kind="share" if step_mib else "gpu",
        whole=True,
        tenant=None,
        profile=None,
        memory_mib=memory_mib,
        cores=100,
        most=(most or memory_mib) if step_mib else 1,
        consumes={},
        taints=(),
        holders=holders,
        step_mib=step_mib or 1,
    )
    return ClaimedGpu(
        node=spec["nodeName"],
        index=int(device["name"].rpartition("-")[2]),
        uuid=_attribute(device, "uuid"),
        product=_attribute(device, "productName"),
        type="",
        devices=(live_device,),
        free={},
    )


def claimed_uuids(
    claim: Mapping[str, Any], slices: Iterable[Mapping[str, Any]], driver: str
) -> Sequence[str]:
    """Return the UUIDs of the devices that a claim was given, as the driver's slices name them.

    "" stands for a device without: one that is made when its claim is used.
    """
    given = {
        (result["pool"], result["device"])
        for result in allocation_results(claim)
        if result["driver"] == driver
    }
    return sorted(
        _attribute(device, "uuid")
        for spec, device in _devices(slices, driver)
        if (spec["pool"]["name"], device["name"]) in given
    )


def _devices(
    slices: Iterable[Mapping[str, Any]], driver: str
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """List a driver's devices, each with the slice's specification: of the newest generations."""
    every = (resource_slice["spec"] for resource_slice in slices)
    specs = [spec for spec in every if spec.get("driver") == driver]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool.get("generation") or 0)
    for spec in specs:
        if (spec["pool"].get("generation") or 0) == newest[spec["pool"]["name"]]:
            for device in spec.get("devices") or ():
                yield spec, device


def _mib(quantity: str) -> int:
    return int(parse_quantity(quantity)) // _MIB


def _attribute(device: Mapping[str, Any], name: str) -> str:
    values = (device.get("attributes") or {}).get(name) or {}
    return str(next(iter(values.values()), ""))
