"""The labels of the node beside what nvidia-smi -q says."""

from __future__ import annotations

import asyncio
import re
from xml.etree import ElementTree

from divvy.agent.gpu.labels import feature_labels, sanitised
from divvy.agent.nvml.discovery import discover
from divvy.agent.plugin.inventory import Device, Resource
from divvy.model import gpu_resource
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings


def run(settings: KitSettings, notes: Notes) -> None:
    """Make the labels of a node that offers its GPUs whole, and hold them against nvidia-smi."""
    snapshot = asyncio.run(discover(settings.root))
    devices = tuple(Device(gpu.uuid, gpu.uuid, gpu.uuid) for gpu in snapshot.gpus)
    whole = Resource(gpu_resource(), devices, "gpu")
    labels = feature_labels(snapshot, (whole,), None)
    told = _told(settings.machine.nvidia_smi("-q", "-x"))
    told["nvidia.com/gpu.compute.major"], told["nvidia.com/gpu.compute.minor"] = (
        settings.machine.nvidia_smi("--query-gpu=compute_cap", "--format=csv,noheader")
        .split()[0]
        .split(".")
    )
    rows = []
    for name, value in labels.items():
        expected = told.get(name)
        if expected is not None:
            notes.equal(name, expected, value)
        rows.append((name, value, "–" if expected is None else expected))
    notes.table("Labels beside nvidia-smi -q", ("label", "Divvy", "nvidia-smi"), rows)


def _told(text: str) -> dict[str, str]:
    """Return what nvidia-smi -q -x says, as the labels that it would make."""
    # The document has a DTD, which is not there; nothing of it is needed.
    log = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text))
    gpu = log.find("gpu")
    assert gpu is not None
    versions = {"driver_version": "cuda.driver-version", "cuda_version": "cuda.runtime-version"}
    answers = {
        "gpu.count": log.findtext("attached_gpus", ""),
        "gpu.product": sanitised(gpu.findtext("product_name", "")),
        "gpu.memory": gpu.findtext("fb_memory_usage/total", "").removesuffix(" MiB"),
        "gpu.family": gpu.findtext("product_architecture", "").lower().replace(" ", "-"),
        "mig.capable": str("N/A" not in gpu.findtext("mig_mode/current_mig", "N/A")).lower(),
        **{f"{label}.full": log.findtext(field, "") for field, label in versions.items()},
    }
    return {f"nvidia.com/{name}": value for name, value in answers.items() if value}
