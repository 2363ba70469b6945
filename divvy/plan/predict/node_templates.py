"""``node_templates``: a node of each pool as it will be, for autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import GpuModel
from divvy.model import claim_names as names
from divvy.model.claims import Claims
from divvy.model.offered_gpu import OfferedGpu, offered_gpu
from divvy.model.slice_attributes import Attributes, version_of
from divvy.model.slice_specs import slice_specs
from divvy.plan.predict.prediction import NodePlan, Plan

# The driver gives a GPU its UUID, which is unknown before the node exists.
_OF_THE_DRIVER = (names.UUID, f"{names.NVIDIA}/uuid", f"{names.NVIDIA}/parentUUID")


@dataclass(frozen=True)
class NodeTemplate:
    """A node of a pool that does not exist yet; it is called as its pool.

    ``labels`` put a node into the pool. ``resources`` is how many devices a kubelet will advertise,
    by resource. ``slices`` are the specs of its ResourceSlices by name, with ``gpu-0``, ``gpu-1``…
    where the GPUs' UUIDs will be, and without what only the driver of the node can tell: UUIDs,
    PCI addresses, NUMA nodes, the versions of driver and CUDA.
    """

    pool: str
    labels: Mapping[str, str]
    resources: Mapping[str, int]
    slices: Mapping[str, Mapping[str, Any]]


def node_templates(plan: Plan) -> tuple[NodeTemplate, ...]:
    """Return the template of every pool whose hardware is known, in the order of the file.

    Single nodes with another profile (``overrides``) exist already and are not described.
    """
    return tuple(
        NodeTemplate(
            pool.name, pool.select or {}, pool.node.per_node, _slices(pool.name, pool.node)
        )
        for pool in plan.pools
        if pool.node is not None
    )


def offered_gpus(node: NodePlan) -> tuple[OfferedGpu, ...]:
    """Return the GPUs of a node that claims are offered, by index."""
    return tuple(
        _offered(gpu.index, gpu.model, gpu.claims) for gpu in node.gpus if gpu.claims is not None
    )


def _slices(name: str, node: NodePlan) -> Mapping[str, Mapping[str, Any]]:
    attributes = {f"gpu-{gpu.index}": _of_model(gpu.model) for gpu in node.gpus}
    specs = slice_specs(name, offered_gpus(node), {}, {}, {}, attributes)
    return {slice_name: _without_driver(spec) for slice_name, spec in specs.items()}


def _offered(index: int, model: GpuModel, claims: Claims) -> OfferedGpu:
    return offered_gpu(
        f"gpu-{index}",
        index,
        model.product,
        model.memory_mib,
        model if model.is_described else None,
        claims,
        simulated=False,
    )


def _of_model(model: GpuModel) -> Attributes:
    version = version_of(model.compute_capability or ())
    return {} if version is None else {names.COMPUTE_CAPABILITY: {"version": version}}


def _without_driver(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    if "devices" not in spec:
        return spec
    devices = [
        {
            **device,
            "attributes": {
                name: value
                for name, value in device["attributes"].items()
                if name not in _OF_THE_DRIVER
            },
        }
        for device in spec["devices"]
    ]
    return {**spec, "devices": devices}
