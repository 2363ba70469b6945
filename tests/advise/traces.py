"""Recorded pods for the tests of advice."""

from typing import Any

from divvy.advise.advice import Advice, PoolAdvice
from divvy.advise.adviser import advise
from divvy.advise.trace import RecordedPod, Trace
from divvy.model import parse_cluster

HOUR, DAY = 3600.0, 86_400.0
GPU_MIB = 40_960


def cluster(
    profile: Any = None, nodes: int = 3, gpus: int = 4, model: str = "A100-SXM4-40GB", **more: Any
) -> Any:
    """Return a cluster with one pool of A100s."""
    return parse_cluster(
        {
            "profiles": {"now": profile or {}},
            "pools": {
                "a100": {
                    "select": {"pool": "a100"},
                    "hardware": {"model": model, "gpus": gpus, "count": nodes},
                    "profile": "now",
                }
            },
            **more,
        }
    )


def pod(name: str, begin: float = 0.0, end: float | None = DAY, **more: Any) -> RecordedPod:
    """Return a pod that held a whole GPU of the pool and used 3 GiB and 10 % of it."""
    values = {
        "namespace": "team",
        "name": name,
        "node": "n0",
        "pool": "a100",
        "resource": "nvidia.com/gpu",
        "kind": "whole",
        "devices": 1,
        "begin": begin,
        "end": end,
        "given_mib": GPU_MIB,
        "given_cores": 100,
        "peak_mib": 3072,
        "cores": 10,
        "peak_cores": 90,
        "waited": 0.0,
        **more,
    }
    return RecordedPod(**values)


def trace(*pods: RecordedPod, end: float = DAY, **more: Any) -> Trace:
    """Return the pods of a day."""
    return Trace("prod", 0.0, end, pods, **more)


def advised(
    pods: Trace, of: Any = None, wanted: float = DAY, allow: Any = (), **more: Any
) -> PoolAdvice:
    """Return the advice for the one pool."""
    advice: Advice = advise(of or cluster(), pods, ["a100"], wanted, allow=frozenset(allow), **more)
    return advice.pools[0]
