"""Other GPU software at work in a cluster, by its DaemonSets, Deployments and custom resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Other:
    """One program: what it is, where it was seen, and what to know before `divvy up`."""

    name: str
    where: str
    remedy: str
    """ "" if it and Divvy do not touch."""


_ALONE = "take it off a pool's nodes before `divvy up`: Divvy advertises nothing until it stops"
_CUTS = "it partitions the same GPUs: switch it off on a pool's nodes before `divvy up`"
_CLAIMED = (
    "it gives the same GPUs to ResourceClaims: take it off a pool's nodes before `divvy up`; node "
    "by node as docs/coming-from.md says, with every command"
)
_LABELS = "it writes the labels that Divvy's agent writes: remove it with the device plugin"
# The driver and the toolkit, which Divvy needs, stay.
_OPERATOR = (
    "set devicePlugin.enabled, gfd.enabled and migManager.enabled to false, or node by node: "
    "`kubectl label node NODE --overwrite nvidia.com/gpu.deploy.device-plugin=false "
    "nvidia.com/gpu.deploy.gpu-feature-discovery=false nvidia.com/gpu.deploy.mig-manager=false`"
)
_PLUGIN = (
    "take it off a pool's nodes before `divvy up`: Divvy advertises nothing until it stops. Node "
    "by node: give the plugin's affinity the condition `{key: gpu-sharing, operator: NotIn, "
    "values: [divvy]}` and each pool's select `gpu-sharing: divvy`, then "
    "`kubectl label node NODE gpu-sharing=divvy` (docs/coming-from.md has every command)"
)
# What a container's image and command contain → what it is. The first that fits counts.
_FRACTIONS = (
    "pods that it gives parts of GPUs hold whole ones; later, `names: {fraction: gpu-fraction}` "
    "makes shares of its annotations"
)
_PROGRAMS = (
    (r"gpu-feature-discovery", "GPU Feature Discovery", _LABELS),
    (r"mps-control-daemon", "NVIDIA's MPS daemon", "it goes with the device plugin"),
    (r"k8s-mig-manager|nvidia-mig-manager", "NVIDIA's MIG manager", _CUTS),
    (r"k8s-dra-driver-gpu|nvidia-dra-driver|dra-driver-nvidia", "NVIDIA's DRA driver", _CLAIMED),
    (r"volcano-vgpu-device-plugin", "Volcano's device plugin", _ALONE),
    (r"projecthami/hami|hami-(scheduler|device-plugin|vgpu)", "HAMi", _ALONE),
    (r"gpushare-(device|sched)", "Aliyun's gpushare", _ALONE),
    (r"nvidia-gpu-device-plugin", "GKE's GPU device plugin", _ALONE),
    (r"kai-scheduler", "KAI Scheduler", _FRACTIONS),
    (r"/gpu-operator(:|@|$)", "GPU Operator", _OPERATOR),
    (r"(k8s|nvidia)-device-plugin", "NVIDIA's device plugin", _PLUGIN),
    (r"nvidia/driver:|nvidia-driver-daemonset", "NVIDIA's driver containers", ""),
    (r"dcgm-exporter", "DCGM exporter", ""),
)  # fmt: skip
_DEFINITIONS = {
    "clusterpolicies.nvidia.com": "GPU Operator",
    "gpuclusters.nvidia.com": "GPU Operator",
    "nvidiadrivers.nvidia.com": "GPU Operator",
    "computedomains.resource.nvidia.com": "NVIDIA's DRA driver",
    "queues.scheduling.run.ai": "KAI Scheduler",
}
_REMEDIES = {name: remedy for _, name, remedy in _PROGRAMS}
DRIVER_CONTAINERS = "NVIDIA's driver containers"


def other_software(
    workloads: Iterable[Mapping[str, Any]], definitions: Iterable[str]
) -> tuple[Other, ...]:
    """Return what DaemonSets and Deployments run; then what only custom resources tell of.

    ``definitions`` are the names of CustomResourceDefinitions.
    """
    software: dict[str, Other] = {}
    for workload in workloads:
        metadata = workload["metadata"]
        where = f"{workload.get('kind', 'DaemonSet')} {metadata['namespace']}/{metadata['name']}"
        for name, remedy in _programs(workload):
            known = software.get(name)
            seen = f"{known.where}, {where}" if known else where
            software[name] = Other(name, seen, remedy)
    for definition in sorted(definitions):
        name = _DEFINITIONS.get(definition, "")
        if name and name not in software:
            software[name] = Other(name, f"CustomResourceDefinition {definition}", _REMEDIES[name])
    return tuple(software[name] for name in sorted(software))


def _programs(workload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pod = workload["spec"]["template"]["spec"]
    seen = set()
    for container in pod.get("containers") or ():
        words = " ".join(
            [
                workload["metadata"]["name"],
                str(container.get("image") or ""),
                *map(str, container.get("command") or ()),
                *map(str, container.get("args") or ()),
            ]
        )
        for pattern, name, remedy in _PROGRAMS:
            if re.search(pattern, words):
                if name not in seen:
                    yield name, remedy
                seen.add(name)
                break
