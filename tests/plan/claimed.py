"""Slices and claims as the API shows them, for tests of what is read from them."""

from typing import Any

from divvy.model import gpu_model
from divvy.model.claim_devices import ClaimDevice, claimable_gpu
from divvy.model.claim_names import type_of_product
from divvy.model.claims import Claims

DRIVER = "divvy.gpu"
WHOLE = {"claims": {}}


def uuid_of(node: str, index: int) -> str:
    """Return the UUID of a GPU of a test."""
    return f"GPU-{node}-{index}"


def slices(
    node: str,
    claims: dict[str, Any],
    model: str = "A100-SXM4-40GB",
    gpus: int = 2,
    generation: int = 1,
    taints: dict[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the slices of a node whose GPUs are all served alike."""
    known = gpu_model(model)
    offered = [
        claimable_gpu(uuid_of(node, i), known.memory_mib, known, Claims.model_validate(claims))
        for i in range(gpus)
    ]
    counters = [
        {
            "name": gpu.uuid.lower(),
            "counters": {name: {"value": str(value)} for name, value in gpu.counters.items()},
        }
        for gpu in offered
        if gpu.counters is not None
    ]
    devices = [
        _device(index, known.product, gpu.uuid, device, (taints or {}).get(index))
        for index, gpu in enumerate(offered)
        for device in gpu.devices
    ]
    pool = {"name": f"{node}/divvy", "generation": generation, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool}
    listed = [{**spec, "sharedCounters": counters}] if counters else []
    return [
        {"metadata": {"name": f"{node}-{number}"}, "spec": part}
        for number, part in enumerate([*listed, {**spec, "devices": devices}])
    ]


def _device(
    index: int, product: str, uuid: str, device: ClaimDevice, taint: str | None
) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "kind": {"string": device.kind},
        "whole": {"bool": device.whole},
        "uuid": {"string": uuid},
        "index": {"int": index},
        "product": {"string": product},
        "type": {"string": type_of_product(product)},
    }
    if device.tenant is not None:
        attributes["tenant"] = {"string": device.tenant}
    if device.profile is not None:
        attributes["profile"] = {"string": device.profile.name}
    capacity: dict[str, Any] = {"memory": {"value": f"{device.memory_mib}Mi"}}
    if device.share is not None:
        step = f"{device.share.step_mib}Mi"
        sizes = {"min": step, "max": f"{device.share.memory_mib}Mi", "step": step}
        capacity = {
            "memory": {
                "value": f"{device.share.memory_mib}Mi",
                "requestPolicy": {
                    "default": f"{device.share.default_mib}Mi",
                    "validRange": sizes,
                },
            },
            "cores": {
                "value": "100",
                "requestPolicy": {
                    "default": str(device.share.default_cores),
                    "validRange": {"min": "1", "max": "100", "step": "1"},
                },
            },
            "shares": {
                "value": str(device.share.most),
                "requestPolicy": {"default": "1", "validValues": ["1"]},
            },
        }
    published: dict[str, Any] = {
        "name": device.name,
        "attributes": attributes,
        "capacity": capacity,
    }
    if device.consumes is not None:
        counters = {name: {"value": str(value)} for name, value in device.consumes.items()}
        published["consumesCounters"] = [{"counterSet": uuid.lower(), "counters": counters}]
    if taint is not None:
        published["taints"] = [{"key": "divvy.gpu/fault", "value": taint, "effect": "NoSchedule"}]
    return published


def claim(
    name: str,
    node: str,
    device: str,
    memory: str | None = None,
    cores: str | None = None,
    pod: str | None = None,
) -> dict[str, Any]:
    """Return a claim that holds a device of a node."""
    result: dict[str, Any] = {"driver": DRIVER, "pool": f"{node}/divvy", "device": device}
    if memory is not None:
        result["consumedCapacity"] = {"memory": memory, "cores": cores}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod or name}],
        },
    }
