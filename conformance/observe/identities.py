"""The UUIDs of devices as pods, the driver, the kubelet and CDI name them."""

from __future__ import annotations

import re

_GPU = re.compile(r"^(?:smi )?GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)", re.MULTILINE)
_MIG = re.compile(r"^(?:smi )?\s+MIG .*\(UUID: (MIG-[^)\s]+)\)", re.MULTILINE)


def visible_devices(listed: str) -> tuple[str, ...]:
    """Return the devices that `nvidia-smi -L` lists: MIG devices, and GPUs that have none."""
    devices: list[str] = []
    gpu = ""
    for line in listed.splitlines():
        if match := _GPU.match(line):
            gpu = match[1]
            devices.append(gpu)
        elif match := _MIG.match(line):
            devices = [uuid for uuid in devices if uuid != gpu]
            devices.append(match[1])
    return tuple(devices)


def visible_gpus(listed: str) -> tuple[str, ...]:
    """Return the GPUs that `nvidia-smi -L` lists, or on which its MIG devices are."""
    return tuple(_GPU.findall(listed))


def physical(device_id: str) -> str:
    """Return the UUID behind an ID that a kubelet knows: replicas carry a number."""
    return device_id.partition("::")[0]


def cuda_version(table: str) -> str | None:
    """Return the CUDA version in nvidia-smi's table, or None."""
    version = re.search(r"CUDA (?:UMD )?Version: (\S+)", table)
    return version[1] if version else None


def driver_version(table: str) -> str | None:
    """Return the driver's version in nvidia-smi's table, or None.

    From driver 610 on the table calls it that of the kernel-mode driver.
    """
    version = re.search(r"(?:Driver|KMD) Version: (\S+)", table)
    return version[1] if version else None


def libraries_version(table: str) -> str | None:
    """Return the version of the driver's libraries in nvidia-smi's table, or None.

    A table that names the kernel-mode driver says nothing of them: nvidia-smi's own is theirs.
    """
    version = re.search(r"NVIDIA-SMI (\S+) +KMD Version: ", table)
    return version[1] if version else driver_version(table)
