"""Ask this machine's driver and the simulated one the same: prints where they differ, as JSON.

``python -m lab.kit.answers.both_drivers --libraries FOLDER --simulator FOLDER --model MODEL
--gpus COUNT --driver VERSION --index INDEX --uuid UUID --scratch FOLDER --answers FILE``
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from divvy.model.gpu_models import gpu_model
from lab.cluster.simulated_driver import install_simulated_driver
from lab.kit.answers.differences import compare, public, text
from lab.kit.answers.recording import Recorded, read

_KINDS = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}
_SECONDS = 60
_MAX_ENDS = 8


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("libraries", "simulator", "scratch", "answers"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("model", "driver", "uuid"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("gpus", "index"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


@contextmanager
def _simulated(options: argparse.Namespace) -> Iterator[Path]:
    """Give the library folder of a simulated driver of the same version with the same GPUs."""
    root = options.scratch / "root"
    root.mkdir()
    models = [gpu_model(options.model)] * options.gpus
    install_simulated_driver(
        root, "hardware-kit", models, options.driver, binaries=options.simulator
    )
    try:
        yield root / "usr/lib/x86_64-linux-gnu"
    finally:
        os.kill(int((root / "run/divvy-simd.pid").read_text()), signal.SIGTERM)


def record(
    kind: str, library: Path, index: int, place: Path, environment: Mapping[str, str]
) -> tuple[Recorded, str]:
    """Ask one library in a process of its own; return its answers, and how the process ended.

    A call that ends the process is left out of a further one: what comes after it counts too.
    """
    # The file itself: two libraries of one name are one to the loader.
    command = [sys.executable, "-m", "lab.kit.answers", kind]
    command += [str(library.resolve()), str(place), str(index)]
    ends: dict[str, str] = {}
    while True:
        done = subprocess.run(
            [*command, *ends], env=environment, stdout=sys.stderr, timeout=_SECONDS, check=False
        )
        recorded = read(place) if place.exists() else Recorded({}, "")
        if done.returncode:
            ends[recorded.running] = (
                f"exit code {done.returncode} in {recorded.running or 'no call'}"
            )
        if not done.returncode or not recorded.running or len(ends) == _MAX_ENDS:
            return recorded, "; ".join(ends.values()) or "to the end"


def main() -> None:
    """Ask, compare, print; the answers of this machine's driver go to a file."""
    options = _arguments()
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    answers, result = {}, {}
    with _simulated(options) as simulator:
        for kind, library in _KINDS.items():
            recorded: dict[str, Recorded] = {}
            ends: dict[str, Any] = {}
            # The simulated GPUs are all the same. One is visible, as a container has it.
            for name, folder, index, visible in (
                ("real", options.libraries, options.index, options.uuid),
                ("simulated", simulator, 0, "0"),
            ):
                place = options.scratch / f"{kind}-{name}.json"
                own = {**environment, "CUDA_VISIBLE_DEVICES": visible}
                recorded[name], ends[name] = record(kind, folder / library, index, place, own)
            answers[kind] = public(recorded["real"].answers)
            compared = compare(kind, recorded["simulated"].answers, recorded["real"].answers)
            result[kind] = {"ended": ends, **asdict(compared)}
    options.answers.write_text(text(answers))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
