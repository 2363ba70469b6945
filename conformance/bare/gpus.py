"""The GPUs of a host as nvidia-smi lists them, and who uses them; text in, values out."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_COLUMNS = ("index", "uuid", "name", "memory.total", "memory.used", "mig.mode.current")
QUERY = f"--query-gpu={','.join(_COLUMNS)} --format=csv,noheader,nounits"
APPS = "--query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader"
# In a container, nvidia-smi names no process of another one. A driver takes less for itself.
_UNNAMED_USE_MIB = 2048
# What nvidia-smi calls the field that it does not know of a GPU.
_NOT_THERE = ("[N/A]", "N/A", "[Not Supported]")


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``users`` are the processes on it, ``mig`` is Enabled, Disabled or N/A."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    mig: str
    users: tuple[str, ...]


def read_gpus(table: str, apps: str) -> tuple[Gpu, ...]:
    """Read what nvidia-smi prints for QUERY and for APPS."""
    users: dict[str, list[str]] = {}
    for uuid, pid, name in re.findall(r"^(GPU-\S+), (\d+), (.*)$", apps, re.MULTILINE):
        program = PurePosixPath(name.strip()).name
        users.setdefault(uuid, []).append(f"process {pid} ({program})")
    gpus = []
    for row in csv.reader(table.splitlines(), skipinitialspace=True):
        if len(row) != len(_COLUMNS):
            continue
        index, uuid, product, memory, used, mig = row
        gpus.append(
            Gpu(
                int(index),
                uuid,
                product,
                int(memory) if memory.isdigit() else 0,
                "N/A" if mig in _NOT_THERE else mig,
                tuple(users.get(uuid, ())) or _unnamed(used),
            )
        )
    return tuple(gpus)


def idle_gpu(gpus: Sequence[Gpu]) -> Gpu | None:
    """Return the first idle GPU without partitions, or None."""
    return next((gpu for gpu in gpus if not gpu.users and gpu.mig != "Enabled"), None)


def why_none_is_idle(gpus: Sequence[Gpu]) -> str:
    """Describe what keeps each GPU from being used alone."""
    reasons = (
        f"GPU {gpu.index} is used by {', '.join(gpu.users)}"
        if gpu.users
        else f"GPU {gpu.index} is in MIG mode"
        for gpu in gpus
    )
    return f"no GPU is idle: {'; '.join(reasons) or 'nvidia-smi lists none'}"


def _unnamed(used: str) -> tuple[str, ...]:
    if used.isdigit() and int(used) > _UNNAMED_USE_MIB:
        return (f"something that nvidia-smi does not name, with {used} MiB",)
    return ()
