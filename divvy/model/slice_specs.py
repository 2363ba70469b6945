"""The ResourceSlices of a node: its shares, its counters, its whole GPUs, its MIG devices.

Limits of Kubernetes 1.36 and 1.37: 8 sets of counters, or 64 devices, in a slice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from divvy.model import claim_names as names
from divvy.model.api_names import CLAIMS_DRIVER, claims_pool
from divvy.model.claim_devices import (
    CORES,
    MEMORY_SLICE,
    ClaimDevice,
    Kind,
    ShareSize,
    gpu_name,
)
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.quantities import mib_quantity
from divvy.model.slice_attributes import Attributes, nvidia_attributes, shortened

# A scheduler reads a pool's slices in the order of their names, and evaluates the class of a
# request on each device until one fits, on every node (docs/performance.md has what that costs).
# Eight GPUs are eight shares and eight whole GPUs, but up to 160 MIG devices, so these come last.
_PARTS: Mapping[Kind, str] = {"share": "by-size", "gpu": "gpus", "mig": "mig"}
_COUNTERS = "counters"
MAX_DEVICES = 64
MAX_COUNTER_SETS = 8
_MAX_NAME = 253


@dataclass(frozen=True)
class Taint:
    """Why a device is not to be allocated: a key of this driver's domain."""

    key: str
    value: str = ""


UNHEALTHY = f"{CLAIMS_DRIVER}/unhealthy"
RETIRING = f"{CLAIMS_DRIVER}/profile-change"
FOREIGN = f"{CLAIMS_DRIVER}/foreign-mig-instance"


def slice_specs(
    node: str,
    offered: Iterable[OfferedGpu],
    taints: Mapping[str, Sequence[Taint]],
    tasks: Mapping[str, int],
    allocated: Mapping[str, Fraction],
    attributes: Mapping[str, Attributes],
) -> dict[str, dict[str, Any]]:
    """Return the ``spec`` of every slice by its name, but for the pool's generation.

    ``taints`` are by device; ``tasks``, ``attributes`` and ``allocated`` (how much of it shares
    take) by GPU. A scheduler takes what stands first: where shares are to be spread, those of the
    GPU with the fewest tasks, and else those of the GPU that is taken most. They begin at the last
    GPU then, because whole GPUs and MIG devices begin at the first one.
    """
    gpus = sorted(offered, key=lambda gpu: (gpu.index, gpu.uuid))
    shared = share_order(gpus, tasks, allocated)
    counters = [
        {
            "name": gpu_name(gpu.uuid),
            "counters": {
                **{name: {"value": str(value)} for name, value in gpu.gpu.counters.items()},
                names.MEMORY: {"value": mib_quantity(memory_counter(gpu))},
            },
        }
        for gpu in gpus
        if gpu.gpu.counters is not None
    ]

    parts = _parts(_COUNTERS, "sharedCounters", counters, MAX_COUNTER_SETS)
    for kind, part in _PARTS.items():
        devices = [
            _device(gpu, device, taints, attributes.get(gpu.uuid, {}))
            for gpu in (shared if kind == "share" else gpus)
            for device in gpu.gpu.devices
            if device.kind == kind
        ]
        parts |= _parts(part, "devices", devices, MAX_DEVICES)
    pool = {"name": claims_pool(node), "resourceSliceCount": len(parts)}
    return {
        slice_name(node, part): {
            "driver": CLAIMS_DRIVER,
            "nodeName": node,
            "pool": pool,
            **content,
        }
        for part, content in sorted(parts.items())
    }


def share_order(
    gpus: Sequence[OfferedGpu], tasks: Mapping[str, int], allocated: Mapping[str, Fraction]
) -> list[OfferedGpu]:
    """Return GPUs, given by index, in the order in which their shares are listed."""

    def place(gpu: OfferedGpu) -> tuple[Fraction | int, int]:
        if gpu.spread:
            return tasks.get(gpu.uuid, 0), 0
        return -allocated.get(gpu.uuid, Fraction()), -gpu.index

    return sorted(gpus, key=place)


def slice_name(node: str, part: str) -> str:
    """Return the name of a slice: a node's may be as long as an object's may."""
    name = f"{node}-{CLAIMS_DRIVER}-{part}"
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:16]
    return f"{digest}-{CLAIMS_DRIVER}-{part}"


def same_spec(spec: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two specs say the same, but for generation and the times of taints."""
    return _comparable(spec) == _comparable(other)


def _comparable(spec: Mapping[str, Any]) -> str:
    pool = {name: value for name, value in spec["pool"].items() if name != "generation"}
    plain = json.loads(json.dumps({**spec, "pool": pool}))
    for device in plain.get("devices") or ():
        for taint in device.get("taints") or ():
            taint.pop("timeAdded", None)
    return json.dumps(plain, sort_keys=True)


def _parts(
    part: str, member: str, items: Sequence[dict[str, Any]], most: int
) -> dict[str, dict[str, Any]]:
    return {
        f"{part}-{at // most}": {member: list(items[at : at + most])}
        for at in range(0, len(items), most)
    }


def memory_counter(gpu: OfferedGpu) -> int:
    """Return the memory (MiB) that the GPU's counter has: what its slices hold at most.

    The least is what whole GPUs and shares take. MIG devices that the slices admit must never be
    refused for their memory, whatever the driver says that the GPU has.
    """
    total = max(_slices(device) for device in gpu.gpu.devices)
    return max(
        device.memory_mib
        if device.profile is None
        # Rounded up.
        else -(-device.memory_mib * total // _slices(device))
        for device in gpu.gpu.devices
    )


def _consumed_memory(gpu: OfferedGpu, device: ClaimDevice) -> int:
    return memory_counter(gpu) if device.profile is None else device.memory_mib


def _slices(device: ClaimDevice) -> int:
    """Return how many memory slices a device takes, one where the GPU is not counted in slices."""
    return max(1, sum(name.startswith(MEMORY_SLICE) for name in device.consumes or ()))


def _device(
    gpu: OfferedGpu,
    device: ClaimDevice,
    taints: Mapping[str, Sequence[Taint]],
    facts: Attributes,
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": device.name,
        "attributes": _attributes(gpu, device, facts),
        "capacity": {names.MEMORY: {"value": mib_quantity(device.memory_mib)}},
    }
    of_nvidia: dict[str, Any] = {"value": mib_quantity(device.memory_mib)}
    if device.share is not None:
        described["allowMultipleAllocations"] = True
        described["capacity"] = _capacity(device.share)
        # For conditions alone: what has no policy is taken whole by the first claim.
        of_nvidia["requestPolicy"] = {"default": "0", "validValues": ["0"]}
    described["capacity"][f"{names.NVIDIA}/{names.MEMORY}"] = of_nvidia
    if device.consumes is not None:
        described["consumesCounters"] = [
            {
                "counterSet": gpu_name(device.uuid),
                "counters": {
                    **{name: {"value": str(value)} for name, value in device.consumes.items()},
                    names.MEMORY: {"value": mib_quantity(_consumed_memory(gpu, device))},
                },
            }
        ]
    if taints.get(device.name):
        described["taints"] = [
            {
                "key": taint.key,
                "effect": "NoSchedule",
                **({"value": v} if (v := taint.value) else {}),
            }
            for taint in taints[device.name]
        ]
    return described


def _attributes(gpu: OfferedGpu, device: ClaimDevice, facts: Attributes) -> dict[str, Any]:
    texts = {
        names.KIND: device.kind,
        names.UUID: device.uuid,
        names.PRODUCT: gpu.product,
        names.TYPE: names.type_of_product(gpu.product),
        names.ARCHITECTURE: gpu.architecture,
        names.TENANT: device.tenant or "",
        names.PROFILE: "" if device.profile is None else device.profile.name,
    }
    attributes: dict[str, Any] = {
        name: {"string": shortened(text)} for name, text in texts.items() if text
    }
    attributes[names.WHOLE] = {"bool": device.whole}
    attributes[names.SIMULATED] = {"bool": gpu.simulated}
    attributes[names.INDEX] = {"int": gpu.index}
    if device.placement is not None:
        attributes[names.START] = {"int": device.placement}
    attributes |= facts
    return attributes | dict(nvidia_attributes(device, attributes))


def _capacity(size: ShareSize) -> dict[str, Any]:
    total, step = mib_quantity(size.memory_mib), mib_quantity(size.step_mib)
    cores = str(CORES)
    return {
        names.MEMORY: {
            "value": total,
            "requestPolicy": {
                "default": mib_quantity(size.default_mib),
                "validRange": {"min": step, "max": total, "step": step},
            },
        },
        names.CORES: {
            "value": cores,
            "requestPolicy": {
                "default": str(size.default_cores),
                "validRange": {"min": "1", "max": cores, "step": "1"},
            },
        },
        names.SHARES: {
            "value": str(size.most),
            "requestPolicy": {"default": "1", "validValues": ["1"]},
        },
    }
