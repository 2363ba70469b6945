"""Attributes of a GPU's devices that only its driver knows, under the names of other drivers."""

from __future__ import annotations

from typing import Any

from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.pci import pci_address
from divvy.model import claim_names as names
from divvy.model.slice_attributes import Attributes, version_of


def gpu_attributes(snapshot: Snapshot | None) -> dict[str, Attributes]:
    """Return by UUID what the driver says of each GPU, for the devices of its slices."""
    if snapshot is None:
        return {}
    return {gpu.uuid: _of_gpu(gpu, snapshot) for gpu in snapshot.gpus}


def _of_gpu(gpu: Gpu, snapshot: Snapshot) -> Attributes:
    versions = {
        names.DRIVER_VERSION: version_of(snapshot.driver_version.split(".")),
        names.CUDA_VERSION: version_of(snapshot.cuda_version),
        names.COMPUTE_CAPABILITY: version_of(gpu.compute_capability),
    }
    texts = {names.PCI_BUS_ID: pci_address(gpu.pci_bus_id), names.PCIE_ROOT: gpu.pcie_root}
    attributes: dict[str, dict[str, Any]] = {
        **{name: {"version": version} for name, version in versions.items() if version},
        **{name: {"string": text} for name, text in texts.items() if text},
    }
    if gpu.numa is not None and gpu.numa >= 0:
        attributes[names.NUMA_NODE] = {"int": gpu.numa}
    return attributes
