"""Apply a MIG plan to one GPU, step by step, through the driver."""

from __future__ import annotations

import logging

from divvy.agent.gpu.hardware import Gpu, MigInstance
from divvy.agent.gpu.mig_plan import MigPlan, nvml_profile, profile_name
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem

_log = logging.getLogger(__name__)


async def apply_plan(driver: Driver, gpu: Gpu, plan: MigPlan) -> None:
    """Carry out a plan; raises DriverProblem. What was done stays done: the next plan goes on."""
    for instance in plan.destroy:
        _log.info("GPU %s: destroying GPU instance %s", gpu.index, instance.gi)
        await driver.change("destroy_instance", gpu, gi=instance.gi, uuid=instance.uuid)
    if plan.mode is not None:
        await _set_mode(driver, gpu, enabled=plan.mode)
    for instance in plan.complete:
        await _complete(driver, gpu, instance)
    for placement in plan.create:
        _log.info("GPU %s: creating %s at slice %s", gpu.index, placement.profile, placement.start)
        await driver.change(
            "create_instance",
            gpu,
            nvml_profile=nvml_profile(gpu, placement.profile),
            start=placement.start,
            size=placement.size,
        )


async def _complete(driver: Driver, gpu: Gpu, instance: MigInstance) -> None:
    """Create the compute instance that a GPU instance lacks; remove what cannot be completed."""
    number = nvml_profile(gpu, profile_name(gpu, instance) or "")
    try:
        await driver.change("complete_instance", gpu, gi=instance.gi, nvml_profile=number)
    except DriverProblem as problem:
        # The next plan makes another; with this one the GPU would stay as it is forever. It is
        # not in use: if it has a MIG device meanwhile, it is not destroyed.
        _log.warning("GPU %s: GPU instance %s is removed: %s", gpu.index, instance.gi, problem)
        await driver.change("destroy_instance", gpu, gi=instance.gi, uuid=None)
        raise


async def _set_mode(driver: Driver, gpu: Gpu, *, enabled: bool) -> None:
    answer = await driver.change("set_mig_mode", gpu, enabled=enabled)
    if answer["current"] != enabled and answer["pending"] == enabled:
        await driver.reset(gpu)
        answer = await driver.change("set_mig_mode", gpu, enabled=enabled)
    if answer["current"] != enabled:
        word = "on" if enabled else "off"
        raise DriverProblem(f"MIG mode is still pending {word}: the GPU needs a reset or a reboot")
