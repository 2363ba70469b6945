"""The shares that ResourceSlices offer: their sizes, of which percentages are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model.claim_names import KIND, MEMORY, TENANT, TYPE
from divvy.model.quantities import parse_count

_MIB = 1 << 20


@dataclass(frozen=True, order=True)
class Share:
    """A kind of share: all its memory in MiB, the type of its GPU, and whose it is."""

    memory_mib: int
    type: str
    tenant: str | None


def shares_of(resource_slice: Mapping[str, Any]) -> frozenset[Share]:
    """Return the kinds of shares that the devices of a slice are."""
    devices = (resource_slice.get("spec") or {}).get("devices") or ()
    shares = set()
    for device in devices:
        attributes = device.get("attributes") or {}
        memory = (device.get("capacity") or {}).get(MEMORY) or {}
        size = parse_count(memory.get("value"))
        if _text(attributes, KIND) == "share" and size is not None and size >= _MIB:
            tenant = _text(attributes, TENANT) or None
            shares.add(Share(size // _MIB, _text(attributes, TYPE), tenant))
    return frozenset(shares)


class OfferedShares:
    """The shares of all slices.

    What is no longer in a slice counts for another ``memory_seconds``: a kubelet that starts again
    removes the slices of its node, and every template of a percentage would be made twice.
    """

    def __init__(self, memory_seconds: float) -> None:
        self._memory_seconds = memory_seconds
        self._slices: dict[str, frozenset[Share]] = {}
        self._counts: Counter[Share] = Counter()
        self._gone: dict[Share, float] = {}

    def put(self, name: str, shares: frozenset[Share], now: float) -> bool:
        """Note what a slice offers now, nothing if it is gone; tell whether that is news."""
        known = self.counted(now).keys()
        before = self._slices.pop(name, frozenset())
        if shares:
            self._slices[name] = shares
        self._counts.update(shares - before)
        for share in before - shares:
            self._counts[share] -= 1
            if not self._counts[share]:
                del self._counts[share]
            self._gone[share] = now
        return not shares <= known

    def replace(self, slices: Mapping[str, frozenset[Share]], now: float) -> bool:
        """Note that there are these slices and no others; tell whether that is news."""
        gone = self._slices.keys() - slices.keys()
        changes = {**dict.fromkeys(gone, frozenset[Share]()), **slices}
        return any([self.put(name, shares, now) for name, shares in changes.items()])

    def counted(self, now: float) -> dict[Share, int]:
        """Return the kinds of shares, and in how many slices each of them is."""
        self._gone = {
            share: since
            for share, since in self._gone.items()
            if now - since < self._memory_seconds
        }
        return {**dict.fromkeys(self._gone, 0), **self._counts}


def _text(attributes: Mapping[str, Any], name: str) -> str:
    value = (attributes.get(name) or {}).get("string")
    return value if isinstance(value, str) else ""
