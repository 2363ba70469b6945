"""The template that a request by size means: one value from another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.claim_templates.offered import Share
from divvy.model.api_names import CLAIMS_DRIVER, MAX_ALTERNATIVES
from divvy.model.claim_names import (
    CORES,
    GPU_CLASS,
    MEMORY,
    TYPE,
    SizedRequest,
    is_of_type,
    share_class,
)

_REQUEST = "gpu"
_ALL, _LEAST = 100, 1
_UNITS = ("Mi", "Gi", "Ti", "Pi", "Ei")


def template_of(request: SizedRequest, offered: Mapping[Share, int]) -> dict[str, Any] | None:
    """Return the specification of the template of a request, as the API server keeps it.

    A percentage is an alternative for each size of share that is ``offered``, those in most slices
    if there are more than a request may have; None if there are none.
    """
    if request.unit == "g":
        return _specification({"exactly": _counted(request, GPU_CLASS, _types(request))})
    if request.unit == "m":
        device_request = _share_request(request, request.amount, _types(request))
        return _specification({"exactly": device_request})
    sizes = _sizes(request, offered)
    if not sizes:
        return None
    alternatives = []
    for number, size in enumerate(sizes):
        amount = max(1, size * request.amount // 100)
        selectors = [*_types(request), _of_size(size)]
        alternatives.append(
            {"name": f"size-{number}", **_share_request(request, amount, selectors)}
        )
    return _specification({"firstAvailable": alternatives})


def _specification(device_request: Mapping[str, Any]) -> dict[str, Any]:
    return {"spec": {"devices": {"requests": [{"name": _REQUEST, **device_request}]}}}


def _share_request(request: SizedRequest, memory_mib: int, selectors: list[str]) -> dict[str, Any]:
    cores = request.cores
    if cores is None:
        cores = _ALL if request.unit == "p" and request.amount == 100 else _LEAST
    device_request = _counted(request, share_class(request.tenant), selectors)
    device_request["capacity"] = {
        "requests": {CORES: str(cores), MEMORY: canonical_mib(memory_mib)}
    }
    return device_request


def _counted(request: SizedRequest, device_class: str, selectors: list[str]) -> dict[str, Any]:
    device_request: dict[str, Any] = {
        "deviceClassName": device_class,
        "allocationMode": "ExactCount",
        "count": request.count,
    }
    if selectors:
        device_request["selectors"] = [{"cel": {"expression": selector}} for selector in selectors]
    return device_request


def _types(request: SizedRequest) -> list[str]:
    """Return the selectors by type: exact parts of a product's name, unlike substrings."""
    # Not optional: the API server knows how long an attribute can be, and of an optional one it
    # does not, so that the expression would count as too costly. Our devices always have a type.
    own = f'("-" + device.attributes["{CLAIMS_DRIVER}"].{TYPE} + "-")'
    use, no = (
        " || ".join(f'{own}.contains("-{type_}-")' for type_ in types)
        for types in (request.use_types, request.no_types)
    )
    return [*([use] if use else []), *([f"!({no})"] if no else [])]


def _of_size(memory_mib: int) -> str:
    quantity = f'quantity("{canonical_mib(memory_mib)}")'
    return f'device.capacity["{CLAIMS_DRIVER}"].{MEMORY}.compareTo({quantity}) == 0'


def _sizes(request: SizedRequest, offered: Mapping[Share, int]) -> list[int]:
    counts: dict[int, int] = {}
    for share, count in offered.items():
        if share.tenant == request.tenant and _fits(request, share.type):
            counts[share.memory_mib] = counts.get(share.memory_mib, 0) + count
    most = sorted(counts, key=lambda size: (-counts[size], size))[:MAX_ALTERNATIVES]
    # The scheduler prefers what comes first: the smaller GPUs, which leaves the larger ones free.
    return sorted(most)


def _fits(request: SizedRequest, type_: str) -> bool:
    if any(is_of_type(type_, no_type) for no_type in request.no_types):
        return False
    used = request.use_types
    return not used or any(is_of_type(type_, used_type) for used_type in used)


def canonical_mib(memory_mib: int) -> str:
    """Return a size as the API server writes it: 3072 MiB are ``3Gi``."""
    amount, unit = memory_mib, 0
    while amount % 1024 == 0 and unit + 1 < len(_UNITS):
        amount, unit = amount // 1024, unit + 1
    return f"{amount}{_UNITS[unit]}"
