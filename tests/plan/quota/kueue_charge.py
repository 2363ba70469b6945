"""What Kueue 0.19.1 charges for a claim: its rule, written after its source, for tests.

pkg/dra/claims.go (what is refused, counts), capacity.go (requests, defaults, rounding) and
counters.go (the largest of the devices that match). Selectors of classes are those of
divvy/render/objects/claims/device_classes.py; a request's own selectors are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from divvy.model.quantities import parse_quantity


class Inadmissible(Exception):
    """Kueue does not admit the claim; the text says why."""


def charge(
    configuration: Mapping[str, Any], slices: Iterable[Mapping[str, Any]], spec: Mapping[str, Any]
) -> Counter[str]:
    """Return what a claim's specification is charged by resource: bytes, or numbers of devices."""
    devices = [device for item in slices for device in item["spec"].get("devices", ())]
    charged: Counter[str] = Counter()
    for request in spec["devices"]["requests"]:
        if "exactly" not in request:
            raise Inadmissible("FirstAvailable device selection is not supported")
        exactly = request["exactly"]
        name, count = exactly["deviceClassName"], exactly.get("count", 1)
        mapping = _mapping(configuration, name)
        matched = [device for device in devices if _selects(name, device)]
        (source,) = mapping.get("sources", ({},))
        if not source:
            charged[mapping["name"]] += count
            continue
        if len(matched) < count:
            raise Inadmissible("insufficient matching devices")
        if "counter" in source:
            amounts = list(_counters(matched, source["counter"]["name"]))
        else:
            amounts = list(_capacities(matched, source["capacity"]["name"], exactly))
        if not amounts:
            raise Inadmissible("no matched device can serve it")
        charged[mapping["name"]] += max(amounts) * count
    return charged


def _mapping(configuration: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for mapping in configuration["resources"]["deviceClassMappings"]:
        if name in mapping["deviceClassNames"]:
            result: Mapping[str, Any] = mapping
            return result
    raise Inadmissible(f"DeviceClass {name} is not mapped")


def _counters(devices: Iterable[Mapping[str, Any]], name: str) -> Iterator[int]:
    for device in devices:
        for consumption in device.get("consumesCounters", ()):
            if name in consumption["counters"]:
                yield int(parse_quantity(consumption["counters"][name]["value"]))


def _capacities(
    devices: Iterable[Mapping[str, Any]], name: str, exactly: Mapping[str, Any]
) -> Iterator[int]:
    requested = exactly.get("capacity", {}).get("requests", {}).get(name)
    for device in devices:
        capacity = device["capacity"].get(name)
        if capacity is None:
            continue
        policy = capacity.get("requestPolicy", {})
        base = requested or policy.get("default") or capacity["value"]
        # Quantity.Value rounds up.
        amount = -int(-parse_quantity(base) // 1)
        least, step, most = (
            int(parse_quantity(policy["validRange"][key])) for key in ("min", "step", "max")
        )
        amount = least + -(-(max(amount, least) - least) // step) * step
        if amount <= most:
            yield amount


def _selects(name: str, device: Mapping[str, Any]) -> bool:
    kind, tenant = _value(device, "kind"), _value(device, "tenant")
    if name == "divvy-gpu":
        return bool(_value(device, "whole"))
    if name.startswith("divvy-share"):
        return kind == "share" and name == f"divvy-share-{tenant}".rstrip("-")
    profile = str(_value(device, "profile")).replace("+", ".")
    return kind == "mig" and name in ("divvy-mig", f"divvy-mig-{profile}")


def _value(device: Mapping[str, Any], name: str) -> object:
    return next(iter(device["attributes"].get(name, {"string": ""}).values()))
