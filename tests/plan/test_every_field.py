"""Every field of a stack file shows in the diff: each is changed and removed, alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from divvy.model import Cluster, InvalidCluster, parse_cluster
from divvy.model import claims as claims_types
from divvy.model import profile as profile_types
from divvy.model import stack as stack_types
from divvy.model.stack_part import StackPart, camel_case
from divvy.plan import diff, plan

# A profile that two pools follow would show below the one if it did not below the other.
RULES: list[dict[str, Any]] = [
    {"devices": [0], "mig": {"1g.10gb": 2}},
    {
        "devices": [1, "GPU-11111111-2222-3333-4444-555555555555"],
        "timeSlicing": {
            "replicas": 4,
            "failRequestsGreaterThanOne": True,
            "resourceName": "gpu.quarter",
            "memoryLimit": {"limit": "auto", "action": "prevent", "oversubscribe": 1.5},
            "compute": "share",
        },
    },
    {"devices": "T4*", "timeSlicing": {"replicas": 6, "memoryLimit": {"limit": "1Gi"}}},
    {
        "devices": "all",
        "timeSlicing": {
            "replicas": 8,
            "renameByDefault": True,
            "memoryLimit": {"limit": "2Gi", "action": "warn"},
        },
    },
]
HARDWARE = {"model": "A100-SXM4-40GB", "gpus": 3, "count": 2, "os": "ubuntu22.04"}
FIELDS: dict[str, Any] = {
    "quota": {"shares": "required"},
    "kubeconfig": "/kubeconfig",
    "context": "here",
    "namespace": "divvy-system",
    "profiles": {
        "cut": RULES,
        "override": [
            {"devices": "A100*", "mig": {"layout": {"1g.10gb": 4}, "strategy": "mixed"}},
            RULES[2],
        ],
        "later": {"timeSlicing": {"replicas": 6, "resourceName": "gpu.sixth"}},
        "next": {"timeSlicing": {"replicas": 7, "resourceName": "gpu.seventh"}},
        "plain": {},
        "together": {
            "mps": {
                "replicas": 4,
                "renameByDefault": False,
                "failRequestsGreaterThanOne": True,
                "memoryLimit": {"limit": "auto", "action": "prevent", "enforcement": "driver"},
                "activeThreadPercentage": 20,
            }
        },
        "named": {"mps": {"replicas": 4, "resourceName": "gpu.mps"}},
        "label": {"timeSlicing": {"replicas": 4}},
        "claimed": {
            "claims": {
                "shares": {
                    "memory": {"step": "256Mi", "oversubscribe": 1.5},
                    "compute": "share",
                    "max": 8,
                    "default": "1Gi",
                    "placement": "spread",
                },
                "mig": ["1g.5gb", "3g.20gb"],
                "tenants": ["prod", "dev"],
            }
        },
    },
    "pools": {
        "predicted": {
            "select": {"role": "a"},
            "hardware": HARDWARE,
            "profile": "cut",
            "overrides": {"node-1": "override"},
            "runtime": {"name": "containerd", "configure": True},
            "tolerations": [
                {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            ],
        },
        "empty": {
            "select": {"role": "b"},
            "hardware": {**HARDWARE, "count": 0},
            "profile": "later",
        },
        "overridden": {
            "select": {"role": "c"},
            "hardware": {**HARDWARE, "count": 1},
            "profile": "next",
            "overrides": {"node-2": "plain"},
        },
        "claimed": {"select": {"role": "d"}, "hardware": HARDWARE, "profile": "claimed"},
        "together": {"select": {"role": "e"}, "hardware": HARDWARE, "profile": "together"},
        "named": {"select": {"role": "f"}, "hardware": HARDWARE, "profile": "named"},
        "unknown": {"profile": "later", "overrides": {"node-3": "plain"}},
    },
    "driver": {"version": "550.163.01", "minVersion": "535.104", "root": "/run/nvidia/driver"},
    "health": {"ignoreXids": [13, 31], "recoverAfter": "45s"},
    "change": {"policy": "evict", "deadline": "500s"},
    "placement": {"replicas": "pack"},
    "names": {
        "gpu": "nvidia.com/gpu",
        "memory": "nvidia.com/gpumem",
        "memoryPercentage": "nvidia.com/gpumem-percentage",
        "cores": "nvidia.com/gpucores",
        "fraction": "gpu-fraction",
        "classes": "nvidia",
    },
    "devices": [{"resource": "rdma/hca", "paths": ["/dev/fuse"], "count": 8}],
    "plugin": {
        "image": {
            "registry": "r:5000",
            "base": "r:5000/base",
            "insecure": True,
            "platforms": ["linux/amd64", "linux/arm64"],
        }
    },
    "imagePullSecrets": ["pull"],
    "observability": {
        "serviceMonitor": True,
        "dashboard": False,
        "alerts": True,
        "networkPolicy": {"name": "monitoring"},
        "runbooks": "https://wiki.example/gpus",
    },
}
PULLED = {**FIELDS, "plugin": {"image": {"reference": f"r:5000/agent@sha256:{'0' * 64}"}}}
# Where the cluster is reached from a machine: it changes nothing on a node.
NOT_OF_NODES = ("kubeconfig", "context")
OTHERS: tuple[Any, ...] = (
    *("x", "/other", "/dev/kvm", "v/x", "30s", "512Mi", "L40S*", f"x@sha256:{'1' * 64}", "1.2"),
    *("label", "never", "spread", "docker", "enforce", "cap", "single", "Equal", "NoSchedule"),
    *("A100-SXM4-80GB", True, False, 0, 2, 5, "2g.10gb", "pack", "all", "1Gi"),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything that can be changed or removed."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(item, (*path, key))


def others(value: dict[str, Any], path: tuple[Any, ...]) -> Iterator[Cluster]:
    """Yield what is valid and not the same without what is at a path, or with another value."""
    before = parse_cluster(value)
    at: Any = value
    for key in path:
        at = at[key]
    for new in (None,) if isinstance(at, dict | list) else (None, *OTHERS):
        after = copy.deepcopy(value)
        at = after
        for key in path[:-1]:
            at = at[key]
        if new is None:
            del at[path[-1]]
        else:
            at[path[-1]] = new
        try:
            cluster = parse_cluster(after)
        except InvalidCluster:
            continue
        if cluster != before:
            yield cluster


def schema() -> set[str]:
    """Return the name of every field as files write it."""
    types = [
        kind
        for module in (stack_types, profile_types, claims_types)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, StackPart)
    ]
    return {camel_case(field) for kind in types for field in kind.model_fields}


def test_shows_every_field_of_the_schema_in_the_diff() -> None:
    seen = set()
    for whole in (FIELDS, PULLED):
        before = plan(parse_cluster(whole), "before")
        for path in paths(whole):
            if whole is PULLED and path[0] != "plugin":
                continue
            for after in others(whole, path):
                shows = path[0] not in NOT_OF_NODES
                assert bool(diff(before, plan(after, "after"))) is shows, (path, after)
                seen.update(path)
    # `rules` is what a profile is made of; files write them without the word.
    assert schema() - seen == {"rules"}, (
        "give a new field a value in FIELDS, and OTHERS a value that is valid for it, too"
    )
