"""Execute a re-cut of one GPU, step by step, through the driver."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from divvy.agent.driver import Driver
from divvy.agent.hardware import Gpu
from divvy.agent.inventory import profile_name
from divvy.agent.nvml.calls import cap_minors
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.partition import Recut, nvml_profile

_log = logging.getLogger(__name__)


async def execute(driver: Driver, gpu: Gpu, plan: Recut) -> None:
    """Carry out a plan; raises DriverProblem. What was done stays done: the next plan goes on."""
    for instance in plan.destroy:
        _log.info("GPU %s: destroying GPU instance %s", gpu.index, instance.gi)
        await driver.change("destroy_instance", uuid=gpu.uuid, gi=instance.gi)
    if plan.mode is not None:
        await _set_mode(driver, gpu, enabled=plan.mode)
    for instance in plan.complete:
        number = nvml_profile(gpu, profile_name(gpu, instance) or "")
        await driver.change("complete_instance", uuid=gpu.uuid, gi=instance.gi, nvml_profile=number)
    for placement in plan.create:
        _log.info("GPU %s: creating %s at slice %s", gpu.index, placement.profile, placement.start)
        await driver.change(
            "create_instance",
            uuid=gpu.uuid,
            nvml_profile=nvml_profile(gpu, placement.profile),
            start=placement.start,
            size=placement.size,
        )


async def _set_mode(driver: Driver, gpu: Gpu, *, enabled: bool) -> None:
    answer = await driver.change("set_mig_mode", uuid=gpu.uuid, enabled=enabled)
    if answer["current"] != enabled and answer["pending"] == enabled:
        await driver.reset(gpu.uuid)
        answer = await driver.change("set_mig_mode", uuid=gpu.uuid, enabled=enabled)
    if answer["current"] != enabled:
        word = "on" if enabled else "off"
        raise DriverProblem(f"MIG mode stays pending {word}: the GPU needs a reset or a reboot")


def make_cap_nodes(root: Path) -> list[str]:
    """Create missing ``dev/nvidia-caps/nvidia-cap<N>`` nodes; return the created names.

    The driver announces the minors in ``proc/driver/nvidia-caps/mig-minors`` and
    the major in ``proc/devices``; without the nodes no container can open a MIG
    device.
    """
    major = _caps_major(root)
    if major is None:
        return []
    folder = root / "dev/nvidia-caps"
    created = []
    for access, minor in sorted(cap_minors(root).items()):
        node = folder / f"nvidia-cap{minor}"
        if not _in_use(root, access) or node.exists():
            continue
        folder.mkdir(mode=0o755, exist_ok=True)
        os.mknod(node, stat.S_IFCHR | 0o444, os.makedev(major, minor))
        node.chmod(0o444)
        created.append(node.name)
    return created


def _in_use(root: Path, access: str) -> bool:
    """Tell whether a capability exists now (mig-minors lists every possible one)."""
    found = re.fullmatch(r"gpu(\d+)/(gi\d+(?:/ci\d+)?)/access", access)
    if found is None:
        return False
    gpu, instance = found.groups()
    return (root / f"proc/driver/nvidia/capabilities/gpu{gpu}/mig/{instance}/access").exists()


def _caps_major(root: Path) -> int | None:
    for devices in (root / "proc/devices", Path("/proc/devices")):
        try:
            found = re.search(r"^\s*(\d+) nvidia-caps$", devices.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found is not None:
            return int(found.group(1))
    return None
