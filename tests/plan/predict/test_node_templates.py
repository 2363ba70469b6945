"""A node that does not exist yet is described as its agent will publish it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from divvy.agent.claims.device_attributes import gpu_attributes
from divvy.agent.claims.offers import wanted_offers
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.desired import desired_state
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.node import NodeView
from divvy.model import parse_cluster
from divvy.model.canonical import canonical_json
from divvy.model.gpu_models import GpuModel, gpu_models
from divvy.model.slice_specs import slice_specs
from divvy.plan import plan
from divvy.plan.predict.node_templates import node_templates
from tests.plan.stacks import planned, pool

# What the node's driver alone can tell.
OF_THE_DRIVER = {
    "uuid",
    "driverVersion",
    "cudaDriverVersion",
    "gpu.nvidia.com/uuid",
    "gpu.nvidia.com/parentUUID",
    "gpu.nvidia.com/driverVersion",
    "gpu.nvidia.com/cudaDriverVersion",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "resource.kubernetes.io/numaNode",
}
GPUS = 2


def profiles(model: GpuModel) -> dict[str, Any]:
    """Return a profile of each kind that a model can have."""
    names = [profile.name for profile in model.mig.profiles] if model.mig else []
    plain = [name for name in names if "+" not in name and "-me" not in name]
    kinds: dict[str, Any] = {
        "whole": {},
        "sliced": {"timeSlicing": {"replicas": 4}},
        "limited": {"timeSlicing": {"replicas": 2, "memoryLimit": "auto"}},
    }
    if model.memory_of_system:
        return kinds | {"claimed": {"claims": {}}}
    kinds["sized"] = {"claims": {"shares": {}}}
    kinds["packed"] = {"claims": {"shares": {"default": "2Gi", "placement": "pack"}}}
    if plain:
        kinds["cut"] = {"mig": {plain[0]: 1}}
        kinds["demand"] = {"claims": {"shares": {}, "mig": plain}}
    return kinds


CASES = [
    pytest.param(model, profile, id=f"{model.name}-{name}")
    for model in gpu_models().values()
    for name, profile in profiles(model).items()
]


@pytest.mark.parametrize(("model", "profile"), CASES)
def test_describes_the_slices_that_the_agent_publishes(
    model: GpuModel, profile: dict[str, Any]
) -> None:
    cluster = {
        "profiles": {"only": profile},
        "pools": {"a": {"select": {"pool": "a"}, **pool("only", model=model.name, gpus=GPUS)}},
    }
    (template,) = node_templates(plan(parse_cluster(cluster), "test"))
    assert json.loads(json.dumps(template.slices)) == published(cluster, model)
    assert bool(template.slices) == ("claims" in profile) != bool(template.resources)


def published(cluster: Any, model: GpuModel) -> dict[str, Any]:
    """Return the slices that an agent publishes on such a node, without what its driver tells."""
    snapshot = hardware(model)
    view = NodeView("", {"pool": "a"}, {}, "")
    desired = desired_state(canonical_json(cluster), "a", view, snapshot, Checkpoint())
    assert desired.problem == ""
    offered = wanted_offers(desired, snapshot, {})
    text = json.dumps(slice_specs("a", offered.values(), {}, {}, {}, gpu_attributes(snapshot)))
    for gpu in snapshot.gpus:
        text = text.replace(gpu.uuid.lower(), f"gpu-{gpu.index}")
    slices: dict[str, Any] = json.loads(text)
    for spec in slices.values():
        for device in spec.get("devices", ()):
            for name in OF_THE_DRIVER:
                device["attributes"].pop(name, None)
    return slices


def test_omits_pools_of_unknown_hardware() -> None:
    described = node_templates(planned({"all": {}}, known=pool("all"), unknown={"profile": "all"}))
    assert [template.pool for template in described] == ["known"]
    assert described[0].labels == {"pool": "known"}
    assert described[0].resources == {"nvidia.com/gpu": 4}


def hardware(model: GpuModel) -> Snapshot:
    """Return what the driver of such a node shows."""
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd",
            product=model.product,
            memory_mib=model.memory_mib,
            minor=index,
            pci_bus_id=f"00000000:0{index + 1}:00.0",
            compute_capability=model.compute_capability or (0, 0),
            numa=index,
            mig_mode=None if model.mig is None else False,
            pcie_root=f"pci0000:0{index}",
        )
        for index in range(GPUS)
    )
    return Snapshot("580.65.06", (13, 0), gpus)
