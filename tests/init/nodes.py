"""Node objects as clusters have them: what NVIDIA's stack, Divvy and others leave on a node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TYPE = "node.kubernetes.io/instance-type"


def node(
    name: str,
    offered: Mapping[str, int],
    labels: Mapping[str, str] | None = None,
    *,
    machine: str | None = "gpu",
    annotations: Mapping[str, str] | None = None,
    capacity: Mapping[str, int] | None = None,
    taints: tuple[Mapping[str, str], ...] = (),
    runtime: str = "containerd://2.1.4",
    kubelet: str = "v1.34.2",
) -> dict[str, Any]:
    """Return a Node that offers these devices; ``machine`` is its type, None for no such label."""
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    if machine is not None:
        own[TYPE] = machine
    quantities = {"cpu": "64", "memory": "527965920Ki", "pods": "110", "hugepages-1Gi": "0"}
    return {
        "metadata": {
            "name": name,
            "labels": {**own, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {
            "allocatable": {**quantities, **{key: str(count) for key, count in offered.items()}},
            "capacity": {
                **quantities,
                **{key: str(count) for key, count in (capacity or offered).items()},
            },
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet},
        },
    }


def gfd(
    product: str,
    count: int,
    memory: int,
    *,
    replicas: int = 1,
    strategy: str | None = None,
    sharing: str | None = None,
    **resources: tuple[int, int],
) -> dict[str, str]:
    """Return GPU Feature Discovery's labels; ``resources`` are (count, replicas) of MIG devices.

    Their names are written mig_1g_5gb for mig-1g.5gb.
    """
    labels = {
        "nvidia.com/cuda.driver-version.full": "550.163.01",
        "nvidia.com/gfd.timestamp": "1763640000",
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": sharing or ("time-slicing" if replicas > 1 else "none"),
    }
    if strategy:
        labels["nvidia.com/mig.strategy"] = strategy
    for name, (number, shared) in resources.items():
        resource = "nvidia.com/" + name.replace("mig_", "mig-").replace("_", ".")
        labels[f"{resource}.count"] = str(number)
        labels[f"{resource}.replicas"] = str(shared)
    return labels


def status(gpus: int) -> dict[str, str]:
    """Return the annotation of Divvy's agent, as far as it matters here."""
    return {"divvy.gpu/status": json.dumps({"state": "Ready", "gpus": [{}] * gpus})}


def hami(product: str, gpus: int, split: int) -> dict[str, str]:
    """Return the annotation in which HAMi's device plugin registers GPUs."""
    listed = [
        {"id": f"GPU-{number}", "count": split, "devmem": 15360, "devcore": 100,
         "type": f"NVIDIA-{product}", "health": True}
        for number in range(gpus)
    ]  # fmt: skip
    return {"hami.io/node-nvidia-register": json.dumps(listed)}
