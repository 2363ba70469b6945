"""What why calls free is where fit would put the pod: one arithmetic, and that of the scheduler."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from divvy.plan.claim_requests import Request
from divvy.plan.fit.claiming import NodeDevices
from divvy.plan.live_claims import ClaimedGpu, claimed_gpus
from divvy.plan.why import explain
from tests.plan.claimed import claim, slices

_OFFERS: tuple[dict[str, Any], ...] = (
    {},
    {"shares": {"memory": {"step": "4Gi"}, "max": 3}},
    {"shares": {"memory": {"step": "3Gi", "oversubscribe": 1.5}}},
    {"shares": {"default": "6Gi", "max": 2}, "mig": ["1g.5gb", "2g.10gb", "3g.20gb"]},
    {"shares": {"memory": {"step": "256Mi"}}, "tenants": ["prod", "dev"]},
)


def held(draw: random.Random, gpus: tuple[ClaimedGpu, ...]) -> list[dict[str, Any]]:
    """Return claims that the scheduler could have given these GPUs to."""
    claims = []
    for gpu in gpus:
        for number in range(draw.randint(0, 3)):
            taken = NodeDevices([gpu]).claim([asked(draw)])
            if taken is None:
                continue
            (one,) = taken
            size = (f"{one.memory_mib}Mi", str(one.cores)) if one.memory_mib else (None, None)
            name = f"{gpu.uuid.lower()}-{number}"
            claims.append(claim(name, gpu.node, one.device.name, *size))
            break
    return claims


def asked(draw: random.Random) -> Request:
    kind = draw.choice(["share", "share", "share", "gpu", "mig"])
    if kind == "mig":
        return Request(1, "mig", profile=draw.choice(["1g.5gb", "2g.10gb", "7g.40gb"]))
    memory = draw.choice([None, 1, 4096, 4097, 9000, 36865, 39937, 40960, 40961, 61440, 61441])
    cores = draw.choice([None, 1, 30, 70, 100, 101])
    if kind == "gpu":
        return Request(1, "gpu", memory, cores=draw.choice([None, None, cores]))
    percent = draw.choice([None, None, 1, 33, 100])
    memory = None if percent else memory
    return Request(1, "share", memory, percent, cores, tenant=draw.choice([None, None, "dev"]))


@pytest.mark.parametrize("seed", range(200))
def test_why_calls_free_what_fit_would_take(seed: int) -> None:
    draw = random.Random(seed)
    node = slices("n", draw.choice(_OFFERS), gpus=2)
    gpus = claimed_gpus(node, held(draw, claimed_gpus(node, ())))
    for _ in range(20):
        request = asked(draw)
        (verdict,) = explain("team/pod", [request], gpus).verdicts
        free = NodeDevices(gpus).claim([request]) is not None
        assert (verdict.nodes == ("n",)) == free, (request, verdict.conclusion)
        empty = [replace(gpu, devices=_empty(gpu), free=_counters(gpu)) for gpu in gpus]
        possible = NodeDevices(empty).claim([request]) is not None
        assert possible or "no GPU can ever give it" in verdict.conclusion, request


def _empty(gpu: ClaimedGpu) -> tuple[Any, ...]:
    return tuple(replace(device, holders=()) for device in gpu.devices)


def _counters(gpu: ClaimedGpu) -> dict[str, int]:
    free = dict(gpu.free)
    for device in gpu.devices:
        for name, number in (device.consumes if device.holders else {}).items():
            free[name] = free.get(name, 0) + number
    return free
