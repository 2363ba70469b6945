"""The simulated driver beside this one: every call that both have, and what they answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from divvy.lab.simulated_driver import install_simulated_driver
from divvy.model import model_of_product
from hardware_kit.answers.differences import Comparison, compare, public
from hardware_kit.answers.recording import Recorded, read
from hardware_kit.machine import Gpu
from hardware_kit.notes import Notes, not_made
from hardware_kit.settings import KitSettings

_KINDS = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}
_SECONDS = 60
_MAX_ROWS = 400


def run(settings: KitSettings, notes: Notes) -> None:
    """Ask both drivers the same, and write down where they differ."""
    gpu = next(candidate for candidate in settings.machine.gpus if candidate.uuid == settings.gpu)
    answers: dict[str, Any] = {}
    with _simulated(settings, gpu) as root:
        for kind, library in _KINDS.items():
            here = _asked(settings, notes, kind, Path(settings.machine.folder) / library, "real")
            simulated = _asked(settings, notes, kind, root / library, "simulated")
            answers[kind] = public(here)
            _tell(kind, compare(kind, simulated, here), notes)
    settings.answers.write_text(json.dumps(answers, indent=1, sort_keys=True))


@contextmanager
def _simulated(settings: KitSettings, gpu: Gpu) -> Iterator[Path]:
    """Give the library folder of a simulated driver of the same version with the same GPU."""
    model = model_of_product(gpu.product, gpu.memory_mib)
    if model is None or not model.is_described:
        not_made(f"{gpu.product} is not in Divvy's data: the simulator cannot be told what it is")
    root = settings.scratch / "root"
    root.mkdir()
    binaries = settings.programs / "simulator"
    driver, models = settings.machine.driver, [model] * len(settings.machine.gpus)
    install_simulated_driver(root, "hardware-kit", models, driver, binaries=binaries)
    try:
        yield root / "usr/lib/x86_64-linux-gnu"
    finally:
        os.kill(int((root / "run/divvy-simd.pid").read_text()), signal.SIGTERM)


def _asked(
    settings: KitSettings, notes: Notes, kind: str, library: Path, name: str
) -> dict[str, Any]:
    place = settings.scratch / f"{kind}-{name}.json"
    environment = {**settings.machine.environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    index = next(g.index for g in settings.machine.gpus if g.uuid == settings.gpu)
    # The simulated GPUs are all the same. One is visible, as a container has it.
    environment["CUDA_VISIBLE_DEVICES"] = settings.gpu if name == "real" else "0"
    of_gpu = str(index if name == "real" else 0)
    command = [sys.executable, "-m", "hardware_kit.answers", kind]
    # The file itself: two libraries of one name are one to the loader.
    command += [str(library.resolve()), str(place), of_gpu]
    done = subprocess.run(command, env=environment, timeout=_SECONDS, check=False)
    recorded = read(place) if place.exists() else Recorded({}, "")
    ended = f"exit code {done.returncode} in {recorded.running or 'no call'}"
    notes.holds(
        f"{kind}: the {name} driver answers to the end",
        done.returncode == 0,
        "exit code 0",
        ended if done.returncode else "exit code 0",
    )
    return recorded.answers


def _tell(kind: str, comparison: Comparison, notes: Notes) -> None:
    notes.tell(f"{kind}: answers compared", comparison.compared)
    notes.tell(
        f"{kind}: differences",
        ", ".join(
            f"{comparison.count(aspect)} of {aspect}" for aspect in ("code", "shape", "value")
        ),
    )
    notes.tell(f"{kind}: calls that only the simulated driver has", list(comparison.only_simulated))
    notes.tell(f"{kind}: calls asked that only this driver has", len(comparison.only_real))
    rows = [
        (difference.call, difference.kind, difference.simulated, difference.real)
        for difference in comparison.differences
    ]
    head = ("call", "differs in", "simulated", "this driver")
    notes.table(f"{kind}: differences", head, rows[:_MAX_ROWS])
