"""`divvy top` as JSON; docs/top.md describes it."""

import json
from typing import Any

from divvy.live.usage import Holding, Usage, UsedGpu, UsedNode, UsingPod


def usage_json(usage: Usage) -> str:
    """Return the use of a cluster's GPUs as JSON text."""
    document = {
        "cluster": usage.cluster,
        "read": usage.read,
        "notes": list(usage.notes),
        "nodes": [_node(node) for node in usage.nodes],
        "waiting": [_pod(pod) for pod in usage.waiting],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _node(node: UsedNode) -> dict[str, Any]:
    return {
        "node": node.name,
        "pool": node.pool,
        "profile": node.profile,
        "product": node.product,
        "state": node.state,
        "reason": node.reason,
        "simulated": node.simulated,
        "unknown": node.unknown,
        "resources": {
            resource.resource: {
                "allocatable": resource.allocatable,
                "requested": resource.requested,
            }
            for resource in node.resources
        },
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "unplaced": [_pod(pod) for pod in node.unplaced],
    }


def _gpu(gpu: UsedGpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "state": gpu.state,
        "reason": gpu.reason,
        "memoryTotalMiB": gpu.total_mib,
        "memoryUsedMiB": gpu.used_mib,
        "utilisation": gpu.utilisation,
        "holders": [_holding(holding) for holding in gpu.holdings],
        "free": dict(gpu.free),
    }


def _holding(holding: Holding) -> dict[str, Any]:
    return {
        "device": holding.device,
        "resource": holding.resource,
        "claim": holding.claim,
        "namespace": holding.pod.namespace,
        "pod": holding.pod.name,
        "container": holding.container,
        "memoryUsedMiB": holding.used_mib,
        "memoryLimitMiB": holding.limit_mib,
        "memoryOverLimitMiB": holding.over_mib,
        "cores": holding.cores,
        "utilisation": holding.utilisation,
        **_life(holding.pod),
    }


def _pod(pod: UsingPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "requests": list(pod.requests),
        **_life(pod),
    }


def _life(pod: UsingPod) -> dict[str, Any]:
    seconds = pod.age_seconds
    return {
        "created": pod.created,
        "ageSeconds": None if seconds is None else int(seconds),
        "state": pod.state,
        "reason": pod.reason,
    }
