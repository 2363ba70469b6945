"""Random clusters, and random pods that ask for what their nodes offer, or nearly so."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.render.objects.claims.api_server import CORES, GPU, MEMORY

_SHARED = {"failRequestsGreaterThanOne": False}
PROFILES = {
    "whole": {},
    "slice-4": {"timeSlicing": {"replicas": 4, **_SHARED}},
    "mix": {"mig": {"2g.10gb": 2, "1g.5gb": 3}},
    "split": [
        {"devices": [0], "mig": {"3g.20gb": 1, "1g.5gb": 2}},
        {"devices": [1], "timeSlicing": {"replicas": 3, **_SHARED}},
        {"devices": "all"},
    ],
    "by-size": {"claims": {"shares": {"memory": {"step": "4Gi"}, "max": 3}}},
    "on-demand": {
        "claims": {"shares": {"default": "6Gi", "max": 2}, "mig": ["1g.5gb", "2g.10gb", "3g.20gb"]}
    },
}
NO_MIG = ("whole", "slice-4", "by-size")
POOLS = {
    "a": {"profile": "by-size", "hardware": {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}}
}
RESOURCES = (
    *(GPU, GPU, "nvidia.com/gpu.shared", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"),
    *("nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-7g.40gb"),
)
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def random_cluster(draw: random.Random) -> dict[str, Any]:
    """Return the value of a cluster: up to three pools; some nodes have a taint."""
    pools = {}
    for name in draw.sample(["a", "b", "c"], draw.choice([1, 2, 3])):
        profile = draw.choice(list(PROFILES))
        model = "A100-SXM4-40GB" if profile not in NO_MIG or draw.random() < 0.5 else "T4"
        gpus = draw.choice([1, 1, 2, 4] if "claims" in PROFILES[profile] else [2, 3, 4])
        hardware = {"model": model, "gpus": gpus, "count": draw.choice([1, 1, 2])}
        pools[name] = {"select": {"pool": name}, "hardware": hardware, "profile": profile}
        if draw.random() < 0.3:
            pools[name]["tolerations"] = [{**TAINT, "operator": "Equal"}]
    return {"profiles": PROFILES, "pools": pools}


def random_pod(draw: random.Random, name: str, offered: Sequence[str]) -> dict[str, Any]:
    """Return a pod that asks for devices in one way or in several, mostly for what is offered."""
    containers = [_resources(draw, offered) for _ in range(draw.choice([1, 1, 1, 2]))]
    spec: dict[str, Any] = {}
    if draw.random() < 0.35:
        # Of one resource, so that it matters what runs beside what.
        offered = [draw.choice(offered)]
        containers = [_resources(draw, offered, most=2)]
        spec["initContainers"] = [
            {
                **{
                    "name": f"init-{number}",
                    "image": "image",
                    "resources": _resources(draw, offered, most=2),
                },
                **({"restartPolicy": "Always"} if draw.random() < 0.5 else {}),
            }
            for number in range(draw.choice([1, 2, 3]))
        ]
    if draw.random() < 0.15:
        spec["nodeSelector"] = {"pool": draw.choice("abcd")}
    elif draw.random() < 0.3:
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": _terms(draw)}}}
    if draw.random() < 0.6:
        spec["tolerations"] = [draw.choice(_TOLERATIONS)]
    return pod_object(name, containers, **spec)


_TOLERATIONS = (
    {"key": "team", "operator": "Exists"},
    {"key": "team", "value": "a"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "value": "b"},
    {"key": "team", "value": "a", "effect": "NoExecute"},
    {"operator": "Exists"},
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_object(name: str, resources: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """Return a pod with a container for each of the resources."""
    containers = [
        {"name": f"main-{number}", "image": "image", "resources": requirements}
        for number, requirements in enumerate(resources)
    ]
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def by_hand(draw: random.Random, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the template of a claim as a person could write it, and a pod with it."""
    requests = [_request(draw, f"gpu-{number}") for number in range(draw.choice([1, 1, 1, 2]))]
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    spec = {"spec": {"devices": {"requests": requests}}}
    template = {**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    claims = [{"name": "gpus", "resourceClaimTemplateName": name}]
    return template, pod_object(name, [{"claims": [{"name": "gpus"}]}], resourceClaims=claims)


_SIZES = ("1", "500m", "3000000000", "4Gi", "4097Mi", "6442450945", "12.5Gi", "40Gi", "41Gi")
_CLASSES = ("divvy-share", "divvy-share", "divvy-share", "divvy-gpu", "divvy-mig-2g.10gb")


def _request(draw: random.Random, name: str) -> dict[str, Any]:
    sizes = {}
    if draw.random() < 0.8:
        sizes["memory"] = draw.choice(_SIZES)
    if draw.random() < 0.6:
        sizes["cores"] = draw.choice(["1", "500m", "10", "30", "100", "101"])
    if draw.random() < 0.1:
        sizes["shares"] = draw.choice(["1", "2"])
    if draw.random() < 0.1:
        sizes[draw.choice(["divvy.gpu/memory", "tflops"])] = "1"
    exactly: dict[str, Any] = {"deviceClassName": draw.choice(_CLASSES)}
    exactly |= {"capacity": {"requests": sizes}} if sizes else {}
    exactly |= {"count": 2} if draw.random() < 0.2 else {}
    return {"name": name, "exactly": exactly}


def _resources(draw: random.Random, offered: Sequence[str], most: int = 6) -> dict[str, Any]:
    cpu = {"requests": {"cpu": draw.choice(["500m", "1", "3"])}} if draw.random() < 0.4 else {}
    if draw.random() < (0.4 if MEMORY in offered else 0.05):
        sizes: dict[str, Any] = {MEMORY: draw.choice([1000, 5000, 8000, 9000, 20000, 30000])}
        sizes |= {CORES: draw.choice([10, 40, 100])} if draw.random() < 0.5 else {}
        sizes |= {GPU: draw.choice([1, 2])} if draw.random() < 0.5 else {}
        return {"limits": sizes, **cpu}
    known = [name for name in offered if name != MEMORY] or [GPU]
    limits = {
        draw.choice(known if draw.random() < 0.9 else RESOURCES): min(
            most, draw.choice([1, 1, 1, 1, 2, 3])
        )
        for _ in range(draw.choice([0, 1, 1, 1, 1, 2]))
    }
    return {"limits": limits, **cpu} if limits else cpu


def _terms(draw: random.Random) -> list[dict[str, Any]]:
    choices = (
        {"key": "pool", "operator": "In", "values": draw.sample("abc", 2)},
        {"key": "pool", "operator": "NotIn", "values": [draw.choice("abc")]},
        {"key": "number", "operator": "Gt", "values": ["0"]},
        {"key": "zone", "operator": "NotIn", "values": [draw.choice("xy")]},
        {"key": "zone", "operator": draw.choice(["Exists", "DoesNotExist"])},
        {"key": "absent", "operator": "DoesNotExist"},
    )
    return [
        {"matchExpressions": draw.sample(choices, draw.choice([1, 2]))}
        for _ in range(draw.choice([1, 2]))
    ]
