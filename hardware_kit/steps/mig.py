"""A MIG layout made by the agent's code, seen by nvidia-smi, and unmade."""

from __future__ import annotations

import re
import time
from collections import Counter

from divvy.model import model_of_product
from hardware_kit.machine import Gpu, Machine
from hardware_kit.mig import mig_layout, mixed_layout
from hardware_kit.notes import Notes, not_made
from hardware_kit.settings import KitSettings


def run(settings: KitSettings, notes: Notes) -> None:
    """Make and unmake a mixed layout of one GPU."""
    gpu, layout = gpu_and_layout(settings)
    machine = settings.machine
    notes.tell("layout", _words(layout))
    began = time.monotonic()
    with mig_layout(settings.root, gpu.uuid, layout, settings.state) as uuids:
        notes.tell("made in seconds", time.monotonic() - began)
        notes.equal("MIG devices as nvidia-smi lists them", _words(layout), _listed(machine, gpu))
        notes.equal("MIG devices that the agent sees", sum(layout.values()), len(uuids))
        began = time.monotonic()
    notes.tell("unmade in seconds", time.monotonic() - began)
    notes.equal("MIG mode afterwards", "Disabled", _mode(machine, gpu))
    notes.equal("MIG devices afterwards", "none", _listed(machine, gpu) or "none")


def gpu_and_layout(settings: KitSettings) -> tuple[Gpu, dict[str, int]]:
    """Return the idle GPU and a layout of its model; ends the step where there is none."""
    gpu = next(candidate for candidate in settings.machine.gpus if candidate.uuid == settings.gpu)
    if gpu.mig == "N/A":
        not_made(f"{gpu.product} has no MIG")
    model = model_of_product(gpu.product, gpu.memory_mib)
    if model is None or model.mig is None:
        not_made(f"{gpu.product} has MIG, and Divvy's data does not know its geometry")
    return gpu, mixed_layout(model.mig)


def _words(layout: dict[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(layout.items()))


def _listed(machine: Machine, gpu: Gpu) -> str:
    _, _, own = machine.nvidia_smi("-L").partition(f"(UUID: {gpu.uuid})")
    own = own.partition("\nGPU ")[0]
    return _words(Counter(re.findall(r"^\s+MIG (\S+)\s+Device", own, re.MULTILINE)))


def _mode(machine: Machine, gpu: Gpu) -> str:
    query = ("-i", gpu.uuid, "--query-gpu=mig.mode.current", "--format=csv,noheader")
    return machine.nvidia_smi(*query).strip()
