"""Prometheus metrics of a node: our own, and the DCGM names that the usual dashboard reads."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from divvy.agent.agent import Agent
from divvy.agent.hardware import Gpu
from divvy.agent.inventory import Resource
from divvy.agent.memory_limit import Excess
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.status import NodeStatus

_STATES = ("Ready", "Changing", "Waiting", "Blocked", "Degraded", "Failed")
# name of the reading → (DCGM's name, help)
_DCGM = {
    "temperature_celsius": ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature in degrees Celsius."),
    "power_watts": ("DCGM_FI_DEV_POWER_USAGE", "Power draw in watts."),
    "sm_clock_mhz": ("DCGM_FI_DEV_SM_CLOCK", "SM clock in MHz."),
    "gpu_utilisation": ("DCGM_FI_DEV_GPU_UTIL", "GPU utilisation in per cent."),
    "memory_used_mib": ("DCGM_FI_DEV_FB_USED", "Used device memory in MiB."),
}


async def metrics_page(agent: Agent, node: str) -> bytes:
    """Render all metrics now."""
    registry = CollectorRegistry()
    _devices(registry, agent.kubelet.published())
    _memory(registry, agent.memory_watch.excesses)
    if agent.status is not None:
        _state(registry, agent.status)
    snapshot = agent.driver.snapshot
    if snapshot is not None and not agent.driver.problem:
        await _readings(registry, agent, snapshot.gpus, node)
    return generate_latest(registry)


def _devices(registry: CollectorRegistry, resources: Sequence[Resource]) -> None:
    gauge = Gauge(
        "divvy_devices", "Devices offered, by health.", ["resource", "healthy"], registry=registry
    )
    for resource in resources:
        healthy = sum(device.unhealthy is None for device in resource.devices)
        gauge.labels(resource.name, "true").set(healthy)
        gauge.labels(resource.name, "false").set(len(resource.devices) - healthy)


def _memory(registry: CollectorRegistry, excesses: Sequence[Excess]) -> None:
    gauge = Gauge(
        "divvy_memory_over_limit_mib",
        "GPU memory that a pod uses beyond the memoryLimit of its shares, in MiB.",
        ["namespace", "pod", "resource", "uuid"],
        registry=registry,
    )
    for excess in excesses:
        namespace, _, pod = excess.pod.partition("/")
        over = excess.used_mib - excess.limit_mib
        gauge.labels(namespace, pod, excess.resource, excess.uuid).set(over)


def _state(registry: CollectorRegistry, status: NodeStatus) -> None:
    gauge = Gauge(
        "divvy_gpu_state",
        "1 for the state a GPU is in.",
        ["gpu", "uuid", "state"],
        registry=registry,
    )
    for gpu in status.gpus:
        for state in _STATES:
            gauge.labels(str(gpu.index), gpu.uuid, state).set(state == gpu.state)
    info = Gauge(
        "divvy_node_profile",
        "1; the labels say which profile and configuration the node follows.",
        ["pool", "profile", "generation"],
        registry=registry,
    )
    info.labels(status.pool or "", status.profile or "", status.generation).set(1)


async def _readings(
    registry: CollectorRegistry, agent: Agent, gpus: Sequence[Gpu], node: str
) -> None:
    names = ["gpu", "UUID", "device", "modelName", "hostname"]
    gauges = {
        reading: Gauge(name, text, names, registry=registry)
        for reading, (name, text) in _DCGM.items()
    }
    for gpu in gpus:
        if gpu.lost:
            continue
        labels = (str(gpu.index), gpu.uuid, f"nvidia{gpu.minor}", gpu.product, node)
        try:
            found = await agent.driver.readings(gpu.uuid)
        except DriverProblem:
            continue
        for reading, value in found.items():
            gauges[reading].labels(*labels).set(value)
