"""Whatever else offers a node's GPUs: DRA drivers, and plugins of other domains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from divvy.model import parse_count
from divvy.model.resource_names import VENDOR

# DRA drivers of NVIDIA's GPUs that do not have NVIDIA's name in theirs.
_DRIVERS = ("hami-core-gpu.project-hami.io",)
# Types of devices of NVIDIA's drivers that are no GPUs: those of ComputeDomains.
_OTHER_DEVICES = ("channel", "daemon")
# Resources that share NVIDIA's GPUs: HAMi, Volcano, Alibaba Cloud, Tencent's gpu-manager, Run:ai.
_SHARERS = (
    "volcano.sh/vgpu-",
    "aliyun.com/gpu-",
    "tencent.com/vcuda-",
    "run.ai/",
    "hami.io/",
    "4paradigm.com/vgpu",
)


def other_offers(
    node: str,
    slices: Iterable[Mapping[str, Any]],
    allocatable: Mapping[str, object],
    planned: Mapping[str, int],
    own_driver: str | None = None,
) -> list[str]:
    """Return what else offers a node's GPUs; ``own_driver`` is the DRA driver under test."""
    drivers = {
        str(resource_slice["spec"].get("driver"))
        for resource_slice in slices
        if resource_slice["spec"].get("nodeName") == node
        and resource_slice["spec"].get("driver") != own_driver
        and (VENDOR in (name := str(resource_slice["spec"].get("driver"))) or name in _DRIVERS)
        and any(_is_gpu(device) for device in resource_slice["spec"].get("devices") or [])
    }
    resources = [
        f"{name} {count}"
        for name, count in sorted(allocatable.items())
        if name.startswith(_SHARERS) and parse_count(count) and name not in planned
    ]
    return [*(f"DRA driver {driver}" for driver in sorted(drivers)), *resources]


def _is_gpu(device: Mapping[str, Any]) -> bool:
    """Return whether a device of NVIDIA's may be a GPU or a part of one: some are neither."""
    # resource.k8s.io/v1 has the attributes in the device itself, v1beta1 below `basic`.
    attributes = device.get("attributes") or (device.get("basic") or {}).get("attributes") or {}
    return (attributes.get("type") or {}).get("string") not in _OTHER_DEVICES
