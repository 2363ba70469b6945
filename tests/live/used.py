"""Nodes, pods and agents' samples as they are read, for tests of what `divvy top` shows."""

import json
from datetime import UTC, datetime
from typing import Any

from divvy.live.agent_readings import Sample
from divvy.live.observed_cluster import AgentAnswer, ObservedCluster, observed_node
from divvy.live.pods import live_pods
from divvy.live.usage import Usage
from divvy.live.usage_reading import read_usage
from divvy.model import parse_cluster
from divvy.plan.fit.readable import ignore

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
CLUSTER = parse_cluster(
    {
        "profiles": {"whole": {}},
        "pools": {
            "training": {
                "profile": "whole",
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 2, "count": 1},
            }
        },
    }
)


def raw_node(
    name: str,
    gpus: list[dict[str, Any]] | None = None,
    allocatable: dict[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """Return a Node of the API; with GPUs, one whose agent has told of them."""
    status_value = {
        "state": "Ready",
        "reason": "",
        "pool": "training",
        "profile": "whole",
        **status,
    }
    annotation = (
        {} if gpus is None else {"divvy.gpu/status": json.dumps({**status_value, "gpus": gpus})}
    )
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/mig-1g.5gb.memory": "4864",
    }
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotation},
        "status": {"allocatable": allocatable or {}},
    }


def raw_gpu(node: str, index: int, *resources: str, **more: Any) -> dict[str, Any]:
    """Return a GPU of a node's status."""
    uuid = f"GPU-{node}-{index}"
    return {"index": index, "uuid": uuid, "state": "Ready", "resources": list(resources), **more}


def raw_pod(
    name: str, node: str | None, limits: dict[str, str] | None = None, **status: Any
) -> dict[str, Any]:
    """Return a pod of the API that is a day old."""
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": name,
            "creationTimestamp": "2026-01-01T12:00:00Z",
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": limits or {}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending", **status},
    }


def gpu_samples(node: str, index: int, used: float, busy: float | None = None) -> list[Sample]:
    """Return what an agent's metrics say of a GPU itself."""
    labels = {
        "UUID": f"GPU-{node}-{index}",
        "gpu": str(index),
        "modelName": "NVIDIA A100-SXM4-40GB",
    }
    samples = [Sample("DCGM_FI_DEV_FB_USED", labels, used)]
    return samples + ([] if busy is None else [Sample("DCGM_FI_DEV_GPU_UTIL", labels, busy)])


def held(
    node: str,
    index: int,
    resource: str,
    mode: str,
    pod: str,
    device: str = "",
    used: float | None = None,
) -> list[Sample]:
    """Return the samples of a device that a container holds."""
    gpu = f"GPU-{node}-{index}"
    labels = {
        "resource": resource,
        "mode": mode,
        "device": device or gpu,
        "uuid": device.partition("::")[0] or gpu,
        "gpu": gpu,
        "namespace": "team",
        "pod": pod,
        "container": "main",
    }
    samples = [Sample("divvy_device_held", labels, 1.0)]
    own = [] if used is None else [Sample("divvy_pod_memory_used_mib", labels, used)]
    return samples + own


def devices(resource: str, mode: str, number: int) -> Sample:
    """Return the sample of how many devices of a resource a node offers."""
    return Sample("divvy_devices", {"resource": resource, "mode": mode, "healthy": "true"}, number)


def usage(
    nodes: list[dict[str, Any]],
    pods: list[dict[str, Any]] | None = None,
    agents: dict[str, list[Sample]] | None = None,
    problems: dict[str, str] | None = None,
    gpus: Any = (),
    claims: list[dict[str, Any]] | None = None,
    **more: Any,
) -> Usage:
    """Return what is shown of a cluster of which this was read."""
    answers = {name: AgentAnswer(tuple(samples)) for name, samples in (agents or {}).items()}
    answers |= {name: AgentAnswer(problem=text) for name, text in (problems or {}).items()}
    by_name = {
        (claim["metadata"]["namespace"], claim["metadata"]["name"]): claim for claim in claims or ()
    }
    seen = ObservedCluster(
        [observed_node(node) for node in nodes],
        live_pods(pods or (), CLUSTER, by_name, NOW, ignore),
        gpus,
        answers,
        **more,
    )
    return read_usage(CLUSTER, "prod", seen, NOW)
