"""Reads a Node object's GPUs: what it offers, and what its labels say of that.

The labels are GPU Feature Discovery's, which Divvy's agent writes too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.init.claimed_gpus import ClaimedGpus
from divvy.live.live_diff import node_status
from divvy.model import GpuModel, UnknownGpuModel, gpu_model, gpu_models, is_memory_of, parse_count
from divvy.model.api_names import STATUS_ANNOTATION
from divvy.model.resource_names import GPU, SHARED_SUFFIX, VENDOR

_HAMI = "hami.io/node-nvidia-register"
# GPU Feature Discovery's for a layout that its strategy cannot name.
INVALID = "INVALID"
_PRODUCT = re.compile(r"(?P<product>.+?)(-MIG-(?P<mig>[0-9A-Z].*?))?(-SHARED)?")
_PRESENT = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
# Controllers set these and remove them: while a node starts, is unhealthy, or is about to go.
_PASSING = re.compile(
    r"node\.kubernetes\.io/|node\.cloudprovider|ToBeDeleted|karpenter\.sh/|[^/]+/agent-not-ready$"
)
_LASTING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class GpuNode:
    """One node with GPUs.

    ``offered`` and ``capacity`` are devices by resource; ``gpus`` how many GPUs the node has,
    where that can be told. ``product`` and ``memory_mib`` describe the GPU; ``single`` is the
    MIG profile, as resource names write it, of which all devices are (strategy "single"),
    INVALID if the layout has no such name. ``replicas`` are by resource, without ``.shared``;
    ``mps``: NVIDIA's MPS shares them. ``claimed`` is the profile of GPUs that NVIDIA's DRA driver
    gives to claims.
    """

    name: str
    labels: Mapping[str, str]
    offered: Mapping[str, int]
    capacity: Mapping[str, int]
    product: str | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    single: str | None = None
    replicas: Mapping[str, int] = field(default_factory=dict)
    mps: bool = False
    divvy: bool = False
    claimed: Any = None
    architecture: str = ""
    runtime: str = "containerd"
    kubelet: str = ""
    os: str | None = None
    driver: str | None = None
    taints: tuple[tuple[str, str | None, str], ...] = ()

    @property
    def model(self) -> GpuModel | None:
        """Return the GPU model that the labels mean, None if they do not tell or it is new."""
        if self.product is None:
            return None
        for model in gpu_models().values():
            names = {"-".join(product.split()) for product in model.products}
            size = self.memory_mib
            if self.product in names and (size is None or is_memory_of(model, size)):
                return model
        try:
            return gpu_model(self.product)
        except UnknownGpuModel:
            return None


def gpu_node(
    node: Mapping[str, Any], claimed: ClaimedGpus | None = None, *, has_gpus: bool = False
) -> GpuNode | None:
    """Read a Node of the API; None if nothing tells of GPUs, nor ``has_gpus`` says so.

    ``claimed`` are the GPUs that a driver of claims has there.
    """
    metadata, status = node["metadata"], node.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    offered = _devices(status.get("allocatable"))
    capacity = _devices(status.get("capacity"))
    product = labels.get(f"{GPU}.product")
    is_labelled = any(labels.get(key) == "true" for key in _PRESENT)
    if not (offered or capacity or product or is_labelled or has_gpus or claimed):
        return None
    claimed = ClaimedGpus() if offered or claimed is None else claimed
    match = _PRODUCT.fullmatch(product or "")
    mig = match["mig"] if match else None
    # Of an invalid layout the label speaks in strategy "single" alone.
    is_single = labels.get(f"{VENDOR}/mig.strategy") == "single" or mig == INVALID
    single = mig if is_single else None
    info = status.get("nodeInfo") or {}
    runtime = str(info.get("containerRuntimeVersion") or "").partition(":")[0]
    hami = _hami(annotations)
    return GpuNode(
        name=metadata["name"],
        labels=dict(labels),
        offered=offered,
        capacity=capacity,
        product=claimed.product or hami.product or (match["product"] if match else None),
        memory_mib=claimed.memory_mib or (None if single else _number(labels.get(f"{GPU}.memory"))),
        gpus=claimed.gpus
        or hami.gpus
        or _agents_gpus(annotations)
        or (None if single else _number(labels.get(f"{GPU}.count"))),
        single=single,
        replicas={**_replicas(labels), **hami.replicas},
        mps=labels.get(f"{GPU}.sharing-strategy") == "mps",
        divvy=STATUS_ANNOTATION in annotations,
        claimed=claimed.profile,
        architecture=str(info.get("architecture") or ""),
        runtime={"cri-o": "cri-o", "docker": "docker"}.get(runtime, "containerd"),
        kubelet=str(info.get("kubeletVersion") or ""),
        os=_os(labels),
        driver=_driver(labels),
        taints=_taints(node.get("spec") or {}),
    )


def _devices(quantities: Mapping[str, object] | None) -> dict[str, int]:
    counts = {
        name: parse_count(quantity)
        for name, quantity in (quantities or {}).items()
        if name.startswith(f"{VENDOR}/")
    }
    return {name: count for name, count in sorted(counts.items()) if count}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) else None


def _replicas(labels: Mapping[str, str]) -> dict[str, int]:
    replicas = {
        key.removesuffix(".replicas"): _number(value)
        for key, value in labels.items()
        if key.startswith(f"{VENDOR}/") and key.endswith(".replicas")
    }
    return {resource: number for resource, number in replicas.items() if number and number > 1}


def _agents_gpus(annotations: Mapping[str, str]) -> int | None:
    """Return how many GPUs Divvy's agent sees."""
    return len(node_status(annotations).get("gpus") or ()) or None


@dataclass(frozen=True)
class _Hami:
    gpus: int | None = None
    product: str | None = None
    replicas: Mapping[str, int] = field(default_factory=dict)


def _hami(annotations: Mapping[str, str]) -> _Hami:
    """Read where HAMi's device plugin registers its GPUs (Project-HAMi/HAMi, register.go)."""
    try:
        listed = json.loads(annotations.get(_HAMI, "[]"))
        counts = {int(gpu["count"]) for gpu in listed}
        types = {str(gpu["type"]).removeprefix("NVIDIA-") for gpu in listed}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return _Hami()
    if len(counts) != 1 or len(types) != 1:
        return _Hami()
    product = "-".join(types.pop().split())
    replicas = counts.pop()
    return _Hami(len(listed), product, {GPU: replicas} if replicas > 1 else {})


def _os(labels: Mapping[str, str]) -> str | None:
    prefix = "feature.node.kubernetes.io/system-os_release"
    name, version = labels.get(f"{prefix}.ID"), labels.get(f"{prefix}.VERSION_ID")
    return f"{name}{version}" if name and version else None


def _driver(labels: Mapping[str, str]) -> str | None:
    full = labels.get(f"{VENDOR}/cuda.driver-version.full")
    parts = [labels.get(f"{VENDOR}/cuda.driver.{part}") for part in ("major", "minor", "rev")]
    known = full or ".".join(part for part in parts if part)
    return known if re.fullmatch(r"\d+\.\d+(\.\d+)?", known) else None


def _taints(spec: Mapping[str, Any]) -> tuple[tuple[str, str | None, str], ...]:
    lasting = (
        (str(taint["key"]), taint.get("value") or None, str(taint["effect"]))
        for taint in spec.get("taints") or ()
        if taint["effect"] in _LASTING and not _PASSING.match(str(taint["key"]))
    )
    return tuple(sorted(lasting, key=str))


def without_suffix(resource: str) -> str:
    """Return a resource's name without ``.shared``."""
    return resource.removesuffix(SHARED_SUFFIX)
