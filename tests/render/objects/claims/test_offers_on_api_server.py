"""The API server takes the slices of every profile that validation lets through."""

from __future__ import annotations

import random
from typing import Any

import pytest

from divvy.agent.claims.device_attributes import gpu_attributes
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.model import InvalidCluster, gpu_model, gpu_models, parse_cluster
from divvy.model.claim_devices import claimable_gpu
from divvy.model.claims import Claims
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.slice_specs import slice_specs
from tests.render.objects.claims.api_server import ApiServer

pytestmark = pytest.mark.lab
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_MODEL = "A100-SXM4-40GB"
_HALF = 20480


def problems(claims: dict[str, Any], model: str = _MODEL) -> dict[str, str]:
    """Return what is wrong with a profile for a model of GPUs, by path."""
    hardware = {"model": model, "gpus": 16, "count": 1}
    pools = {"p": {"profile": "p", "hardware": hardware}}
    try:
        parse_cluster({"profiles": {"p": {"claims": claims}}, "pools": pools})
    except InvalidCluster as invalid:
        return {problem.path: str(problem) for problem in invalid.problems}
    return {}


def refusals(server: ApiServer, claims: dict[str, Any], model: str = _MODEL) -> list[str]:
    """Return what the API server does not take of the slices of a node with such GPUs."""
    known = gpu_model(model)
    offered = [
        OfferedGpu(
            claimable_gpu(
                f"GPU-{index:08}-0000-0000-0000-000000000000",
                known.memory_mib,
                known,
                Claims.model_validate(claims),
            ),
            index,
            known.product,
            known.architecture,
            simulated=True,
        )
        for index in range(16)
    ]
    seen = tuple(
        Gpu(
            index=gpu.index,
            uuid=gpu.uuid,
            product=gpu.product,
            memory_mib=known.memory_mib,
            minor=gpu.index,
            pci_bus_id=f"00000000:{gpu.index:02X}:00.0",
            compute_capability=(8, 0),
            numa=0,
            pcie_root="pci0000:00",
        )
        for gpu in offered
    )
    attributes = gpu_attributes(Snapshot("550.163.01", (12, 4), seen))
    refused = []
    for name, spec in slice_specs("node", offered, {}, {}, {}, attributes).items():
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
        }
        answer = server.send("POST", _SLICES, body, dryRun="All")
        if answer.status != 201:
            refused.append(answer.body["message"])
    return refused


@pytest.mark.parametrize(
    ("memory", "least"),
    [
        ({"step": f"{_HALF}Mi"}, ""),
        ({"step": f"{_HALF + 1}Mi"}, "20480Mi at most"),
        ({"step": "40Gi"}, "20480Mi at most"),
        ({"step": "41Gi"}, "20480Mi at most"),
        ({"step": "1000Ti"}, "20480Mi at most"),
        ({"step": "40Gi", "oversubscribe": 2.0}, ""),
        ({"step": "41Gi", "oversubscribe": 2.0}, "40960Mi at most"),
    ],
)
def test_refuses_a_step_that_does_not_fit_a_gpu_twice(
    server: ApiServer, memory: dict[str, Any], least: str
) -> None:
    claims = {"shares": {"memory": memory}}
    by_path = problems(claims)
    assert (by_path == {}) == (least == "")
    if least:
        assert list(by_path) == ["profiles.p.claims.shares.memory.step"]
        assert least in by_path["profiles.p.claims.shares.memory.step"]
    # A GPU that no stack file describes is left without shares rather than a node without GPUs.
    assert refusals(server, claims) == []


def test_publishes_valid_slices_for_every_accepted_profile(server: ApiServer) -> None:
    draw = random.Random(36)
    accepted = 0
    for model in [*gpu_models()] * 4:
        claims = random_claims(draw, model)
        if not problems(claims, model):
            accepted += 1
            assert refusals(server, claims, model) == [], (model, claims)
    assert accepted > 30


def random_claims(draw: random.Random, model: str) -> dict[str, Any]:
    """Return claims, most of them near the edges of what is possible."""
    known = gpu_model(model)
    memory: dict[str, Any] = {}
    if draw.random() < 0.7:
        half = known.memory_mib // 2
        size = draw.choice([1, 7, 256, 1000, half, half + 1, known.memory_mib // 3 + 1])
        memory["step"] = f"{size}Mi"
    if draw.random() < 0.4:
        memory["oversubscribe"] = draw.choice([1.0, 1.5, 2.0, 3.7, 16.0])
    shares: dict[str, Any] = {"memory": memory, "max": draw.choice([1, 2, 16, 64])}
    if draw.random() < 0.3:
        step = int(memory.get("step", "1Mi")[:-2])
        shares["default"] = f"{step * draw.randint(1, max(1, known.memory_mib // step))}Mi"
    claims: dict[str, Any] = {"shares": shares}
    if known.mig is not None and draw.random() < 0.5:
        every = [profile.name for profile in known.mig.profiles]
        claims["mig"] = draw.sample(every, draw.randint(1, len(every)))
    if draw.random() < 0.4:
        claims["tenants"] = [f"tenant-{number:09}" for number in range(draw.choice([1, 3, 8]))]
    return claims
