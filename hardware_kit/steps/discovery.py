"""The agent's discovery beside nvidia-smi: which GPUs and MIG devices there are."""

from __future__ import annotations

import asyncio
import re

from divvy.agent.nvml.discovery import discover
from divvy.model import model_of_product
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings


def run(settings: KitSettings, notes: Notes) -> None:
    """Compare what both list, and say what Divvy's data knows of the products."""
    snapshot = asyncio.run(discover(settings.root))
    listed = re.findall(r"UUID: (\S+?)\)", settings.machine.nvidia_smi("-L"))
    seen = [
        uuid
        for gpu in snapshot.gpus
        for uuid in (gpu.uuid, *(instance.uuid for instance in gpu.instances if instance.uuid))
    ]
    # UUIDs say which machine it is, and stay out of the record.
    notes.equal("GPUs and MIG devices", len(listed), len(seen))
    notes.holds("their UUIDs", sorted(seen) == sorted(listed), "nvidia-smi's", _same(seen, listed))
    notes.equal("driver", settings.machine.driver, snapshot.driver_version)
    notes.equal("GPUs that do not answer", "none", list(snapshot.unreadable) or "none")
    notes.equal("simulated", settings.machine.simulated, snapshot.simulated)
    notes.tell("CUDA", f"{snapshot.cuda_version[0]}.{snapshot.cuda_version[1]}")
    for gpu in snapshot.gpus:
        model = model_of_product(gpu.product, gpu.memory_mib)
        known = "not in Divvy's data" if model is None else f"known as {model.name}"
        capability = ".".join(map(str, gpu.compute_capability))
        notes.tell(
            f"GPU {gpu.index}",
            f"{gpu.product}, {gpu.memory_mib} MiB, compute capability {capability}, "
            f"brand {gpu.brand}, NUMA node {gpu.numa}, MIG {_mig(gpu.mig_mode)}; {known}",
        )
        if model is not None:
            notes.equal(f"memory of GPU {gpu.index} in MiB", model.memory_mib, gpu.memory_mib)
            notes.equal(
                f"compute capability of GPU {gpu.index}",
                model.compute_capability,
                gpu.compute_capability,
            )
    for scores in ([score for _, score in snapshot.links.items()],) if snapshot.links else ():
        notes.tell("scores of the links between GPUs", sorted(scores))


def _same(seen: list[str], listed: list[str]) -> str:
    odd = len(set(seen) ^ set(listed))
    return "nvidia-smi's" if not odd else f"{odd} that only one of them lists"


def _mig(mode: bool | None) -> str:
    return {None: "not there", False: "off", True: "on"}[mode]
