"""The place of a GPU on the PCI bus, in the words of Kubernetes' standard attributes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

# NVML writes eight digits of the domain, Kubernetes four.
_NVML = re.compile(r"(?:0000)?(?P<address>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_ROOT = re.compile(r"devices/(?P<root>pci[0-9a-f]{4}:[0-9a-f]{2})/")


def pci_address(nvml: str) -> str:
    """Return a PCI address as Kubernetes writes it, "" if its form has no room for it."""
    match = _NVML.fullmatch(nvml.lower())
    return "" if match is None else match["address"]


def pcie_root(nvml: str, roots: Iterable[Path]) -> str:
    """Return the PCIe root complex of a device, "" if no file system tells it."""
    address = pci_address(nvml)
    for root in roots if address else ():
        with contextlib.suppress(OSError):
            link = root / "sys/bus/pci/devices" / address
            match = _ROOT.search(str(link.readlink()))
            if match is not None:
                return match["root"]
    return ""
