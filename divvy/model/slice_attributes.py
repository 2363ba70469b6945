"""Attributes of a slice's devices that follow from the device: as the API server takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from divvy.model import claim_names as names
from divvy.model.claim_devices import ClaimDevice
from divvy.model.nvidia_claims import TYPE

Attributes = Mapping[str, Mapping[str, Any]]
# DeviceAttributeMaxValueLength of Kubernetes. NVML's names of products may have 95 bytes, and a
# value that is too long costs the node its slice.
_MAX_BYTES = 64
_NUMBER = re.compile(r"[0-9]{1,9}")


def shortened(text: str) -> str:
    """Return as much of a text as the API server takes as an attribute."""
    return text.encode()[:_MAX_BYTES].decode(errors="ignore")


def nvidia_attributes(device: ClaimDevice, own: Attributes) -> Attributes:
    """Return a device's attributes as NVIDIA's driver calls them, as far as it has them."""
    attributes = {
        "uuid" if device.profile is None else "parentUUID": own[names.UUID],
        "productName": own[names.PRODUCT],
        names.INDEX: own[names.INDEX],
    }
    # A part of a GPU that no request for a whole one may take has none: no class selects it.
    if device.whole or device.profile is not None:
        attributes[TYPE] = {"string": "gpu" if device.profile is None else "mig"}
    alike = (
        names.ARCHITECTURE,
        names.PROFILE,
        names.DRIVER_VERSION,
        names.CUDA_VERSION,
        names.COMPUTE_CAPABILITY,
    )
    attributes |= {name: own[name] for name in alike if name in own}
    return {f"{names.NVIDIA}/{name}": value for name, value in attributes.items()}


def version_of(parts: Sequence[object]) -> str | None:
    """Return a semantic version, which has three numbers without leading zeros."""
    texts = [str(part) for part in parts]
    if not all(map(_NUMBER.fullmatch, texts)):
        return None
    numbers = [int(text) for text in texts]
    return ".".join(map(str, [*numbers, 0, 0][:3])) if any(numbers) else None
